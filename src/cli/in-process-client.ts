/** The service layer of this very process, through the same pipeline as every transport. */
import { Readable } from "node:stream";
import { create, fromJson } from "@bufbuild/protobuf";
import type {
  DescMessage,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  JsonValue,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { invalidField, SvcError } from "../errors.ts";
import type { Call } from "../rpc/call-context.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import type { UserContext } from "../rpc/user-context.ts";
import { services } from "../../gen/svc/v1/services.ts";
import type { UnaryCall } from "./transport/calls.ts";
import type { CallOptions, Client, Method, Requests } from "./transport/client.ts";
import { messageToRest } from "./transport/rest-json.ts";

export interface InProcessClientOptions {
  readonly pipeline: Pick<Pipeline, "invokeUnary" | "invokeServerStream" | "invokeClientStream">;
  /** Who calls. */
  readonly user: UserContext;
  /** Ends what was opened for the calls. */
  readonly dispose: () => Promise<void>;
}

export class InProcessClient implements Client {
  readonly #options: InProcessClientOptions;

  constructor(options: InProcessClientOptions) {
    this.#options = options;
  }

  async call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options: CallOptions = {},
  ): Promise<Response> {
    const method = services.find(({ typeName }) => typeName === call.service)?.method[call.method];
    if (method?.methodKind !== "unary") throw new Error(`${call.service} has no unary method ${call.method}`);
    const message = fromRestJson(method.input, request);
    const answer = await this.#options.pipeline.invokeUnary(
      method as DescMethodUnary,
      message,
      this.#callOf(options),
    );
    return messageToRest(method.output, answer) as Response;
  }

  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options: CallOptions = {},
  ): AsyncIterable<MessageShape<O>> {
    const { pipeline } = this.#options;
    const isStream = Symbol.asyncIterator in requests;
    const messages = isStream ? [] : requests.map((request) => create(method.input, request));
    const first = messages[0] ?? create(method.input);
    const call = this.#callOf(options);
    // The kind decides which of the three descriptor types it is; the generic type does not know.
    switch (method.methodKind) {
      case "unary":
        yield await pipeline.invokeUnary(method as DescMethodUnary<I, O>, first, call);
        return;
      case "server_streaming":
        yield* pipeline.invokeServerStream(method as DescMethodServerStreaming<I, O>, first, call);
        return;
      case "client_streaming":
        yield await pipeline.invokeClientStream(
          method as DescMethodClientStreaming<I, O>,
          isStream
            ? created(method.input, requests)
            : (Readable.from(messages) as AsyncIterable<MessageShape<I>>),
          call,
        );
        return;
      case "bidi_streaming":
        throw new SvcError("unimplemented", "not_implemented", `${method.name} needs a daemon`);
    }
  }

  #callOf({ signal, timeoutMs }: CallOptions): Call {
    return {
      user: this.#options.user,
      requestId: crypto.randomUUID(),
      protocolName: "in-memory",
      signal,
      timeoutMs,
    };
  }

  outlives(): Promise<false> {
    return Promise.resolve(false);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#options.dispose();
  }
}

function fromRestJson<Desc extends DescMessage>(type: Desc, request: unknown): MessageShape<Desc> {
  try {
    return fromJson(type, request as JsonValue);
  } catch (error) {
    throw invalidField("", (error as Error).message);
  }
}

async function* created<I extends DescMessage>(
  desc: I,
  requests: AsyncIterable<MessageInitShape<I>>,
): AsyncGenerator<MessageShape<I>> {
  for await (const request of requests) yield create(desc, request);
}
