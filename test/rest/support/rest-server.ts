/** REST on real HTTP/1.1 and cleartext HTTP/2 servers, with a pipeline that remembers what it was called with. */
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
import { BodyTurns } from "../../../src/lib/body-turns.ts";
import { FairTurns } from "../../../src/lib/fair-turns.ts";
import { createRestHandler } from "../../../src/rest/rest-handler.ts";
import type { RestLimits } from "../../../src/rest/rest-protocol.ts";
import type { Route } from "../../../src/rest/route.ts";
import { Exchange } from "../../../src/rpc/exchange.ts";
import type { HttpCall } from "../../../src/rpc/http-call.ts";
import type { Pipeline } from "../../../src/rpc/pipeline.ts";
import type { UserContext } from "../../../src/rpc/user-context.ts";

export interface RecordingCall {
  readonly responseHeader: Headers;
  readonly signal: AbortSignal;
}

/** Answers with what `answer` says (default: the request itself) and keeps the last call. */
export class RecordingPipeline {
  readonly turns = new FairTurns();
  method: string | undefined;
  /** The request as JSON, defaults left out. */
  message: JsonValue | undefined;
  /** The pieces of an upload. */
  pieces: Message[] = [];
  gates: (string | undefined)[] = [];
  refuse: ((method: DescMethod | undefined) => void) | undefined;
  answer:
    ((method: DescMethod, message: Message, call: RecordingCall) => Promise<Message> | Message) | undefined;
  stream: ((method: DescMethod, message: Message, call: RecordingCall) => AsyncIterable<Message>) | undefined;
  upload: ((messages: AsyncIterable<Message>, call: RecordingCall) => Promise<void>) | undefined;

  readonly #waiting: (() => void)[] = [];

  gate(method: DescMethod): void {
    this.gates.push(method.name);
    this.refuse?.(method);
  }

  noteAnswer(): void {}

  async invoke(
    method: DescMethod,
    input: Message | AsyncIterable<Message>,
    call: HttpCall,
  ): Promise<Message> {
    if (Symbol.asyncIterator in input) return await this.#takeUpload(method, input, call);
    const message = input;
    this.#record(method, message);
    if (this.answer !== undefined) return await this.answer(method, message, recordingCall(call));
    return method.output === method.input ? message : create(method.output);
  }

  invokeStream(method: DescMethod, message: Message, call: HttpCall): AsyncIterable<Message> {
    this.#record(method, message);
    if (this.stream === undefined) throw new Error("no stream is set");
    return this.stream(method, message, recordingCall(call));
  }

  async #takeUpload(method: DescMethod, messages: AsyncIterable<Message>, call: HttpCall): Promise<Message> {
    this.#arrive();
    this.method = method.name;
    this.pieces = [];
    if (this.upload !== undefined) await this.upload(messages, recordingCall(call));
    else for await (const message of messages) this.pieces.push(message);
    return create(method.output);
  }

  /** Resolves at the next call of a handler, so that a test knows that its request has arrived. */
  nextCall(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #arrive(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #record(method: DescMethod, message: Message): void {
    this.#arrive();
    this.method = method.name;
    this.message = toJson(method.input, message);
  }
}

function recordingCall(call: HttpCall): RecordingCall {
  return { signal: call.source.signal, responseHeader: call.openResponseHeader() };
}

export interface Answer {
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
  send(request: HttpRequest): Promise<Answer>;
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
    bodies: new BodyTurns(pipeline.turns),
    log: { error: (details) => internalErrors.push((details as { err: unknown }).err) },
    ...(shutdownSignal && { shutdownSignal }),
  });
  const handler = createRestHandler({
    routes,
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
    if (!handler(request, response, { user, requestId: "r-1", isNoted: false })) {
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
      await once(server, "close");
    },
  };
}

function sendHttp1(
  port: number,
  agent: http.Agent,
  { method, path, headers, body }: HttpRequest,
): Promise<Answer> {
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
        const answer = {
          status: response.statusCode ?? 0,
          headers: Object.fromEntries(flat) as Record<string, string>,
        };
        resolve({ ...answer, body: Buffer.concat(chunks) });
      });
    });
    request.end(body);
  });
}

function sendHttp2(
  session: http2.ClientHttp2Session,
  { method, path, headers, body }: HttpRequest,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stream = session.request(
      { ":method": method, ":path": path, ...headers },
      { endStream: body === undefined },
    );
    let status = 0;
    let answerHeaders: Record<string, string> = {};
    const chunks: Buffer[] = [];
    stream.on("response", (received) => {
      status = received[":status"] ?? 0;
      answerHeaders = Object.fromEntries(
        Object.entries(received).map(([name, value]) => [name, String(value)]),
      );
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", reject);
    stream.on("end", () => resolve({ status, headers: answerHeaders, body: Buffer.concat(chunks) }));
    if (body !== undefined) stream.end(body);
  });
}

/** A message of `type` from its JSON. */
export function messageOf(type: DescMessage, json: JsonValue): Message {
  return fromJson(type, json);
}
