/** REST in front of the pipeline: the caller is known already, the rest is the pipeline's. */
import type {
  DescMethod,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
} from "@bufbuild/protobuf";
import type { AbortSource } from "../lib/abort-source.ts";
import { createRestHandler } from "../rest/rest-handler.ts";
import type { RestHandler } from "../rest/rest-handler.ts";
import type { RestPipeline, RestRequest } from "../rest/rest-pipeline.ts";
import type { Route } from "../rest/route.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import { HttpCall } from "../rpc/http-call.ts";
import { shownError } from "../rpc/error-mapping.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, shareName } from "../rpc/user-context.ts";
import type { AnswerNotes } from "./answer-notes.ts";
import type { Caller, Callers, HttpRequest } from "./http.ts";
import type { TransportLimits } from "./limits.ts";
import type { Log } from "../lib/log.ts";

const protocolName = "rest";

/** A call and its caller, who is noted with the answer: by the pipeline from when the call has begun. */
class NotedCall extends HttpCall {
  readonly #caller: Caller;

  constructor(caller: Caller, source: AbortSource, { headers }: Pick<RestRequest, "headers">) {
    super({ user: caller.user, requestId: caller.requestId, protocolName, headers, source });
    this.#caller = caller;
  }

  begun(): this {
    this.#caller.isNoted = true;
    return this;
  }
}

export interface RestFrontOptions {
  readonly pipeline: Pipeline;
  readonly routes: Iterable<Route>;
  readonly callers: Callers;
  readonly notes: AnswerNotes;
  readonly limits: TransportLimits;
  readonly bodies: BodyTurns;
  readonly shutdownSignal: AbortSignal;
  readonly log: Pick<Log, "error">;
}

export function createRestFront(options: RestFrontOptions): RestHandler {
  const { pipeline, routes, callers, notes, limits, bodies, shutdownSignal, log } = options;

  const restPipeline: RestPipeline<NotedCall> = {
    gate(method, request, source) {
      const caller = callers.get(request);
      if (caller === undefined) throw new Error("the request carries no identity");
      if (method !== undefined) {
        // It notes whom it turns away.
        caller.isNoted = true;
        pipeline.gate(method, caller.user, caller.requestId, protocolName);
        caller.isNoted = false;
      }
      return new NotedCall(caller, source, request);
    },
    unary: (method, message, call) => pipeline.invokeUnary(method as DescMethodUnary, message, call.begun()),
    serverStream: (method, message, call) =>
      pipeline.invokeServerStream(method as DescMethodServerStreaming, message, call.begun()),
    clientStream: (method: DescMethod, messages, call) =>
      pipeline.invokeClientStream(method as DescMethodClientStreaming, messages, call.begun()),
  };

  const requestIdOf = (request: object): string => callers.get(request)?.requestId ?? "";
  return createRestHandler({
    routes,
    pipeline: restPipeline,
    maxBodyBytes: limits.maxBodyBytes,
    bodyTimeoutMs: limits.requestTimeoutMs,
    shutdownSignal,
    requestIdOf,
    isBounded: (request) => callers.get(request)?.user.root !== true,
    openTurn: (request) => bodies.open(shareName(callers.get(request)?.user ?? anonymous)),
    failed: (request, error) => notes.note(request as HttpRequest, { error }),
    internalError: (thrown, request) => {
      const requestId = requestIdOf(request);
      const error = shownError(thrown, requestId);
      if (error.code === "internal") log.error({ requestId, err: thrown }, "a request failed unexpectedly");
      return error;
    },
  });
}
