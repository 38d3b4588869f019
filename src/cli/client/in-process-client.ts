/** The service layer in this process, through the same pipeline as every transport. */
import { create, fromJson, type DescMessage, type JsonValue, type MessageShape } from "@bufbuild/protobuf";
import { invalidField } from "../../errors.ts";
import type { Call } from "../../server/rpc/call-context.ts";
import type { Pipeline } from "../../server/rpc/pipeline.ts";
import type { UserContext } from "../../server/rpc/user-context.ts";
import { services } from "../../../gen/svc/v1/services.ts";
import type { UnaryCall } from "./calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client.ts";
import { messageToRest } from "./rest-json.ts";

export interface InProcessClientOptions {
  readonly pipeline: Pick<Pipeline, "invoke" | "invokeStream">;
  /** The calling user. */
  readonly user: UserContext;
  /** Closes what was opened for the calls. */
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
    const answer = await this.#options.pipeline.invoke(method, message, this.#callOf(options));
    return messageToRest(method.output, answer) as Response;
  }

  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options: CallOptions = {},
  ): AsyncIterable<MessageShape<O>> {
    const { pipeline } = this.#options;
    const call = this.#callOf(options);
    const messages = createEach(method.input, requests);
    const firstOf = async (): Promise<MessageShape<I>> => {
      const first = await messages.next();
      return first.done === true ? create(method.input) : first.value;
    };
    const { methodKind } = method;
    const takesStream = methodKind === "client_streaming" || methodKind === "bidi_streaming";
    const input = takesStream ? messages : await firstOf();
    if (methodKind === "unary" || methodKind === "client_streaming")
      yield await pipeline.invoke(method, input, call);
    else yield* pipeline.invokeStream(method, input, call);
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

  isAvailable(): Promise<true> {
    return Promise.resolve(true);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#options.dispose();
  }
}

async function* createEach<I extends DescMessage>(
  type: I,
  requests: Requests<I>,
): AsyncGenerator<MessageShape<I>, void> {
  for await (const request of requests) yield create(type, request);
}

function fromRestJson<Desc extends DescMessage>(type: Desc, request: unknown): MessageShape<Desc> {
  try {
    return fromJson(type, request as JsonValue);
  } catch (error) {
    throw invalidField("", (error as Error).message);
  }
}
