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
import type { RestCall, RestPipeline, RestRequest } from "../rest/rest-pipeline.ts";
import type { Route } from "../rest/route.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import type { Call } from "../rpc/call-context.ts";
import { shownError } from "../rpc/error-mapping.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, shareName } from "../rpc/user-context.ts";
import type { AnswerNotes } from "./answer-notes.ts";
import type { Caller, Callers, HttpRequest } from "./http.ts";
import type { TransportLimits } from "./limits.ts";
import type { Log } from "../lib/log.ts";

const protocolName = "rest";

/** A call whose answer's headers exist once the handler sets one. */
class RestCallState implements RestCall, Call {
  readonly user;
  readonly requestId;
  readonly protocolName = protocolName;
  readonly source;
  readonly #caller: Caller;
  readonly #headers: Readonly<Record<string, string | string[] | undefined>>;
  #responseHeader: Headers | undefined;

  constructor(caller: Caller, source: AbortSource, { headers }: Pick<RestRequest, "headers">) {
    this.user = caller.user;
    this.requestId = caller.requestId;
    this.source = source;
    this.#caller = caller;
    this.#headers = headers;
  }

  /** It is the pipeline's from here on, which notes what becomes of it. */
  begun(): this {
    this.#caller.isNoted = true;
    return this;
  }

  openRequestHeader(): Headers {
    const headers = new Headers();
    for (const [name, value] of Object.entries(this.#headers)) {
      // HTTP/2's pseudo-headers are none.
      if (value !== undefined && !name.startsWith(":")) headers.set(name, String(value));
    }
    return headers;
  }

  openResponseHeader(): Headers {
    return (this.#responseHeader ??= new Headers());
  }

  /** What REST adds to the answer; undefined when nobody set anything. */
  get responseHeader(): Headers {
    return this.#responseHeader as Headers;
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

  const restPipeline: RestPipeline<RestCallState> = {
    gate(method, request, source) {
      const caller = callers.get(request);
      if (caller === undefined) throw new Error("the request carries no identity");
      if (method !== undefined) {
        // It notes whom it turns away.
        caller.isNoted = true;
        pipeline.gate(method, caller.user, caller.requestId, protocolName);
        caller.isNoted = false;
      }
      return new RestCallState(caller, source, request);
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
