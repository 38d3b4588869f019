/** Sends random requests and reads the responses. */
import { Agent, request as httpRequest } from "node:http";
import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import type { FuzzRequest } from "./requests.ts";

export interface FuzzAnswer {
  /** HTTP status; 0: the connection was closed without one, or the client rejected the request. */
  readonly status: number;
  readonly type: string;
  /** gRPC's status, in headers or trailers. */
  readonly grpcStatus: string | undefined;
  readonly grpcMessage: string;
  /** The beginning of the body. */
  readonly text: string;
  /** The response timed out. */
  readonly isLate: boolean;
}

/** Where requests go. */
export type ExchangeTarget =
  { readonly host: string; readonly port: number } | { readonly socketPath: string };

/** For a response; endless streams are closed at their first pause. */
const answerTimeoutMs = 30_000;
const streamSilenceMs = 300;
/** For the server to close a connection with invalid bytes. */
const rawSilenceMs = 50;

const nothing: FuzzAnswer = {
  status: 0,
  type: "",
  grpcStatus: undefined,
  grpcMessage: "",
  text: "",
  isLate: false,
};

export class Exchange implements Disposable {
  readonly #target: ExchangeTarget;
  readonly #agent = new Agent({ keepAlive: true });
  #session: ClientHttp2Session | undefined;

  constructor(target: ExchangeTarget) {
    this.#target = target;
  }

  async send(request: FuzzRequest): Promise<FuzzAnswer> {
    try {
      if (request.raw !== undefined) return await this.#raw(request.raw);
      return await (request.http === "2" ? this.#http2(request) : this.#http1(request));
    } catch {
      // Node's own client rejects some headers and paths.
      return nothing;
    }
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
    this.#session?.destroy();
  }

  #http1({ method, path, headers, body }: FuzzRequest): Promise<FuzzAnswer> {
    const { promise, resolve } = Promise.withResolvers<FuzzAnswer>();
    const client = httpRequest({
      ...{ ...this.#target, agent: this.#agent, method, path },
      headers: { host: "localhost", ...headers, "content-length": String(body.length) },
    });
    const timer = setTimeout(() => {
      resolve({ ...nothing, isLate: true });
      client.destroy();
    }, answerTimeoutMs);
    client.on("error", () => resolve(nothing));
    client.on("response", (response) => {
      let text = "";
      const done = (): void => {
        const type = response.headers["content-type"] ?? "";
        const grpcStatus = firstOf(response.headers["grpc-status"]);
        const grpcMessage = firstOf(response.headers["grpc-message"]) ?? "";
        resolve({ status: response.statusCode ?? 0, type, grpcStatus, grpcMessage, text, isLate: false });
      };
      response.on("data", (chunk: Buffer) => (text = begin(text, chunk)));
      response.on("end", done).on("close", done).on("error", done);
      response.setTimeout(streamSilenceMs, () => client.destroy());
    });
    client.end(body);
    return promise.finally(() => clearTimeout(timer));
  }

  #http2({ method, path, headers, body }: FuzzRequest): Promise<FuzzAnswer> {
    const { promise, resolve } = Promise.withResolvers<FuzzAnswer>();
    const endStream = body.length === 0;
    const stream = this.#openSession().request(
      { ":method": method, ":path": path, ...headers },
      { endStream },
    );
    let answer = nothing;
    const timer = setTimeout(() => {
      answer = { ...nothing, isLate: true };
      stream.close();
    }, answerTimeoutMs);
    stream.on("response", (head) => {
      answer = {
        ...answer,
        status: head[":status"] ?? 0,
        type: head["content-type"] ?? "",
        grpcStatus: firstOf(head["grpc-status"]),
        grpcMessage: firstOf(head["grpc-message"]) ?? "",
      };
      stream.setTimeout(streamSilenceMs, () => stream.close());
    });
    stream.on("trailers", (trailers) => {
      const sent = trailers as Record<string, string | undefined>;
      answer = {
        ...answer,
        grpcStatus: sent["grpc-status"] ?? answer.grpcStatus,
        grpcMessage: sent["grpc-message"] ?? answer.grpcMessage,
      };
    });
    stream.on("data", (chunk: Buffer) => (answer = { ...answer, text: begin(answer.text, chunk) }));
    stream.on("error", () => undefined);
    stream.on("close", () => resolve(answer));
    if (!endStream) stream.end(body);
    return promise.finally(() => clearTimeout(timer));
  }

  #openSession(): ClientHttp2Session {
    if (this.#session === undefined || this.#session.destroyed || this.#session.closed) {
      this.#session = connectHttp2("http://localhost", { createConnection: () => connectTo(this.#target) });
      this.#session.on("error", () => undefined);
    }
    return this.#session;
  }

  #raw(bytes: Buffer): Promise<FuzzAnswer> {
    const { promise, resolve } = Promise.withResolvers<FuzzAnswer>();
    const socket = connectTo(this.#target);
    let text = "";
    socket.on("data", (chunk: Buffer) => (text = begin(text, chunk)));
    socket.on("error", () => undefined);
    socket.on("close", () => {
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
      resolve({ ...nothing, status, text: text.split("\r\n\r\n")[1] ?? "" });
    });
    socket.setTimeout(rawSilenceMs, () => socket.destroy());
    socket.write(bytes);
    return promise;
  }
}

function connectTo(target: ExchangeTarget): Socket {
  return "port" in target ? connectSocket(target) : connectSocket(target.socketPath);
}

function begin(text: string, chunk: Buffer): string {
  return text.length > 4096 ? text : text + chunk.toString("latin1");
}

function firstOf(value: string | string[] | undefined): string | undefined {
  return typeof value === "string" ? value : value?.[0];
}
