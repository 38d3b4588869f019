/** A client for a daemon, behind its unix socket or remote. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { SvcError } from "../../errors.ts";
import type { UnaryCall } from "./calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client.ts";
import { readAll, send, type Endpoint } from "./http.ts";
import { callRest } from "./rest-client.ts";

/** Timeouts of a probe in milliseconds. The connection to a remote daemon may have to be opened first. */
const probeTimeoutMs = { local: 2_000, remote: 10_000 };

export class SocketClient implements Client {
  readonly #endpoint: Endpoint;

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options?: CallOptions,
  ): Promise<Response> {
    return callRest(this.#endpoint, call, request, options);
  }

  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>> {
    if (method.methodKind === "bidi_streaming") {
      const { invokeGrpc } = await import("./grpc-client.ts");
      yield* invokeGrpc(this.#endpoint, method, piecesOf(requests), options);
      return;
    }
    const { invokeConnect } = await import("./connect-client.ts");
    yield* invokeConnect(this.#endpoint, method, requests, options);
  }

  outlives(): Promise<true> {
    return Promise.resolve(true);
  }

  async isAvailable(signal?: AbortSignal): Promise<boolean> {
    const timeoutMs = "socketPath" in this.#endpoint ? probeTimeoutMs.local : probeTimeoutMs.remote;
    try {
      await readAll(await send(this.#endpoint, { method: "GET", path: "/healthz", timeoutMs, signal }));
      return true;
    } catch (error) {
      if (error instanceof SvcError) return false;
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Each request on a socket has a separate connection, which closes with it.
    if (!("socketPath" in this.#endpoint)) await this.#endpoint[Symbol.asyncDispose]();
  }
}

async function* piecesOf<T>(requests: readonly T[] | AsyncIterable<T>): AsyncGenerator<T> {
  yield* requests;
}
