/** A daemon, behind its unix socket or elsewhere. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { UnaryCall } from "./calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client.ts";
import type { Endpoint } from "./http.ts";
import { callRest } from "./rest-client.ts";

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
      yield* invokeGrpc(this.#endpoint, method, asTheyCome(requests), options);
      return;
    }
    const { invokeConnect } = await import("./connect-client.ts");
    yield* invokeConnect(this.#endpoint, method, requests, options);
  }

  outlives(): Promise<true> {
    return Promise.resolve(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // On a socket every request has a connection of its own, which ends with it.
    if (!("socketPath" in this.#endpoint)) await this.#endpoint[Symbol.asyncDispose]();
  }
}

async function* asTheyCome<T>(requests: readonly T[] | AsyncIterable<T>): AsyncGenerator<T> {
  yield* requests;
}
