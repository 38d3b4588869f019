/** REST in front of the pipeline: the caller is known already, the rest is the pipeline's. */
import type {
  DescMethod,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
} from "@bufbuild/protobuf";
import { createRestHandler } from "../rest/rest-handler.ts";
import type { RestHandler } from "../rest/rest-handler.ts";
import type { RestCall, RestPipeline } from "../rest/rest-pipeline.ts";
import type { Route } from "../rest/route.ts";
import type { Call } from "../rpc/call-context.ts";
import { shownError } from "../rpc/error-mapping.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import type { Caller, Callers } from "./http.ts";
import type { TransportLimits } from "./limits.ts";

const protocolName = "rest";

/** A call whose answer's headers exist once the handler sets one. */
class RestCallState implements RestCall, Call {
  readonly user;
  readonly requestId;
  readonly protocolName = protocolName;
  readonly signal;
  #responseHeader: Headers | undefined;

  constructor({ user, requestId }: Caller, signal: AbortSignal) {
    this.user = user;
    this.requestId = requestId;
    this.signal = signal;
  }

  readonly openResponseHeader = (): Headers => (this.#responseHeader ??= new Headers());

  /** What REST adds to the answer; undefined when nobody set anything. */
  get responseHeader(): Headers {
    return this.#responseHeader as Headers;
  }
}

export interface RestFrontOptions {
  readonly pipeline: Pipeline;
  readonly routes: Iterable<Route>;
  readonly callers: Callers;
  readonly limits: TransportLimits;
  readonly shutdownSignal: AbortSignal;
  readonly log: { error(details: object, message: string): void };
}

export function createRestFront(options: RestFrontOptions): RestHandler {
  const { pipeline, routes, callers, limits, shutdownSignal, log } = options;

  const restPipeline: RestPipeline<RestCallState> = {
    gate(method, request, signal) {
      const caller = callers.get(request);
      if (caller === undefined) throw new Error("the request carries no identity");
      if (method !== undefined) pipeline.gate(method, caller.user, caller.requestId, protocolName);
      return new RestCallState(caller, signal);
    },
    unary: (method, message, call) => pipeline.invokeUnary(method as DescMethodUnary, message, call),
    serverStream: (method, message, call) =>
      pipeline.invokeServerStream(method as DescMethodServerStreaming, message, call),
    clientStream: (method: DescMethod, messages, call) =>
      pipeline.invokeClientStream(method as DescMethodClientStreaming, messages, call),
  };

  return createRestHandler({
    routes,
    pipeline: restPipeline,
    maxBodyBytes: limits.maxBodyBytes,
    bodyTimeoutMs: limits.requestTimeoutMs,
    shutdownSignal,
    internalError: (thrown, request) => {
      const requestId = callers.get(request)?.requestId ?? "";
      const error = shownError(thrown, requestId);
      if (error.code === "internal") log.error({ requestId, err: thrown }, "a request failed unexpectedly");
      return error;
    },
  });
}
