/** REST on real HTTP/1.1 and cleartext HTTP/2 servers, with a pipeline that records its calls. */
import {
  create,
  fromJson,
  toJson,
  type DescMessage,
  type DescMethod,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { BodyScheduler } from "../../../../src/lib/body-scheduler.ts";
import { FairQueue } from "../../../../src/lib/fair-queue.ts";
import { reject } from "../../../../src/server/http/reject-request.ts";
import { JsonWriter } from "../../../../src/server/rest/json-writer.ts";
import { canonicalPath } from "../../../../src/server/rest/path.ts";
import { createRestHandler } from "../../../../src/server/rest/rest-handler.ts";
import type { RestLimits } from "../../../../src/server/rest/rest-protocol.ts";
import { Router, type Route } from "../../../../src/server/rest/router.ts";
import { shownError } from "../../../../src/server/rpc/error-mapping.ts";
import { pathOf, type CanonicalPath } from "../../../../src/server/rpc/http-request.ts";
import { Exchange } from "../../../../src/server/rpc/exchange.ts";
import type { HttpCall } from "../../../../src/server/rpc/http-call.ts";
import type { Pipeline } from "../../../../src/server/rpc/pipeline.ts";
import type { UserContext } from "../../../../src/server/rpc/user-context.ts";
import { nextEvent } from "../../../support/eventually.ts";

export interface RecordingCall {
  readonly responseHeader: Headers;
  readonly signal: AbortSignal;
}

/** Records the last call and returns the result of `respond`; by default, the request itself. */
export class RecordingPipeline {
  readonly fairQueue = new FairQueue();
  readonly streamKeepAliveMs = 25_000;
  method: string | undefined;
  /** Request of the last call as JSON, without default values. */
  message: JsonValue | undefined;
  /** Messages of the last upload. */
  chunks: Message[] = [];
  gates: (string | undefined)[] = [];
  reject: ((method: DescMethod | undefined) => void) | undefined;
  respond:
    ((method: DescMethod, message: Message, call: RecordingCall) => Promise<Message> | Message) | undefined;
  stream: ((method: DescMethod, message: Message, call: RecordingCall) => AsyncIterable<Message>) | undefined;
  upload: ((messages: AsyncIterable<Message>, call: RecordingCall) => Promise<void>) | undefined;

  readonly #waiting: (() => void)[] = [];

  gate(method: DescMethod): void {
    this.gates.push(method.name);
    this.reject?.(method);
  }

  recordResponse(): void {}

  async invoke(
    method: DescMethod,
    input: Message | AsyncIterable<Message>,
    call: HttpCall,
  ): Promise<Message> {
    if (Symbol.asyncIterator in input) return await this.#receiveUpload(method, input, call);
    const message = input;
    this.#record(method, message);
    if (this.respond !== undefined) return await this.respond(method, message, recordingCall(call));
    return method.output === method.input ? message : create(method.output);
  }

  invokeStream(method: DescMethod, message: Message, call: HttpCall): AsyncIterable<Message> {
    this.#record(method, message);
    if (this.stream === undefined) throw new Error("no stream is set");
    return this.stream(method, message, recordingCall(call));
  }

  async #receiveUpload(
    method: DescMethod,
    messages: AsyncIterable<Message>,
    call: HttpCall,
  ): Promise<Message> {
    this.#notifyWaiting();
    this.method = method.name;
    this.chunks = [];
    if (this.upload !== undefined) await this.upload(messages, recordingCall(call));
    else for await (const message of messages) this.chunks.push(message);
    return create(method.output);
  }

  /** Resolves when the next request reaches the handler. */
  nextCall(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #notifyWaiting(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #record(method: DescMethod, message: Message): void {
    this.#notifyWaiting();
    this.method = method.name;
    this.message = toJson(method.input, message);
  }
}

function recordingCall(call: HttpCall): RecordingCall {
  return { signal: call.source.signal, responseHeader: call.openResponseHeader() };
}

export interface RestResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | undefined;
}

export type Protocol = "HTTP/1.1" | "h2c";

export interface RestServer extends AsyncDisposable {
  readonly pipeline: RecordingPipeline;
  readonly internalErrors: unknown[];
  readonly port: number;
  send(request: HttpRequest): Promise<RestResponse>;
}

export async function startRestServer(
  protocol: Protocol,
  routes: readonly Route[],
  { shutdownSignal, ...limits }: Partial<RestLimits> & { shutdownSignal?: AbortSignal } = {},
): Promise<RestServer> {
  const recording = new RecordingPipeline();
  const pipeline = recording as RecordingPipeline & Pipeline;
  const internalErrors: unknown[] = [];
  const exchange = new Exchange({
    pipeline,
    bodies: new BodyScheduler(pipeline.fairQueue),
    log: { error: (details) => internalErrors.push((details as { err: unknown }).err) },
    ...(shutdownSignal && { shutdownSignal }),
  });
  const handler = createRestHandler({
    routes,
    router: new Router(routes),
    exchange,
    pipeline,
    maxBodyBytes: 1024 * 1024,
    bodyTimeoutMs: 30_000,
    ...limits,
  });
  const user: UserContext = { uid: 0, root: true, kind: "peer", ownerUid: 0 };
  const listener = (
    request: http.IncomingMessage | http2.Http2ServerRequest,
    response: http.ServerResponse | http2.Http2ServerResponse,
  ): void => {
    let path: CanonicalPath;
    try {
      // As the request gateway does.
      path = canonicalPath(pathOf(request), { escapedSlash: "allow" });
    } catch (error) {
      reject(request, response, shownError(error, "r-1"), { isProcedure: false, writer: new JsonWriter() });
      return;
    }
    if (!handler(request, response, { user, requestId: "r-1", path, isRecorded: false })) {
      response.statusCode = 418;
      response.end();
    }
  };
  const server = protocol === "HTTP/1.1" ? http.createServer(listener) : http2.createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client =
    protocol === "HTTP/1.1" ? new http.Agent({ keepAlive: true }) : http2.connect(`http://127.0.0.1:${port}`);
  return {
    pipeline: recording,
    internalErrors,
    port,
    send: (request) =>
      client instanceof http.Agent ? sendHttp1(port, client, request) : sendHttp2(client, request),
    async [Symbol.asyncDispose]() {
      client.destroy();
      if (server instanceof http.Server) server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

function sendHttp1(
  port: number,
  agent: http.Agent,
  { method, path, headers, body }: HttpRequest,
): Promise<RestResponse> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const request = http.request({
      port,
      host: "127.0.0.1",
      agent,
      method,
      path,
      headers: { ...length, ...headers },
    });
    request.on("error", reject).on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", reject);
      response.on("end", () => {
        const flat = Object.entries(response.headers).map(([name, value]) => [name, String(value)]);
        const head = {
          status: response.statusCode ?? 0,
          headers: Object.fromEntries(flat) as Record<string, string>,
        };
        resolve({ ...head, body: Buffer.concat(chunks) });
      });
    });
    request.end(body);
  });
}

function sendHttp2(
  session: http2.ClientHttp2Session,
  { method, path, headers, body }: HttpRequest,
): Promise<RestResponse> {
  return new Promise((resolve, reject) => {
    const stream = session.request(
      { ":method": method, ":path": path, ...headers },
      { endStream: body === undefined },
    );
    let status = 0;
    let responseHeaders: Record<string, string> = {};
    const chunks: Buffer[] = [];
    stream.on("response", (received) => {
      status = received[":status"] ?? 0;
      responseHeaders = Object.fromEntries(
        Object.entries(received).map(([name, value]) => [name, String(value)]),
      );
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", reject);
    stream.on("end", () => resolve({ status, headers: responseHeaders, body: Buffer.concat(chunks) }));
    if (body !== undefined) stream.end(body);
  });
}

/** Creates a message of `type` from JSON. */
export function messageOf(type: DescMessage, json: JsonValue): Message {
  return fromJson(type, json);
}
