/**
 * Calls that are Connect's own, by its adapter for Express on HTTP/1.1 and by the one for node on HTTP/2. Each method has its
 * handlers made for the first who needs them: those of all methods take twice as long as Node's own start, and their memory.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import { createContextValues, type ContextValues } from "@connectrpc/connect";
import { expressConnectMiddleware } from "@connectrpc/connect-express";
import { compressionBrotli, compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import { maxStructure } from "../errors.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import { methodName } from "../rpc/access.ts";
import { boundMessages } from "../rpc/bounded-messages.ts";
import { endableBody, endableBodyKey } from "../rpc/endable-body.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { requestIdKey, shareName, userContextKey } from "../rpc/user-context.ts";
import { guardRoutes, responseKey, type Failed } from "./connect-guard.ts";
import { callerOf, isUploadTo, type HttpRequest, type HttpResponse } from "./http.ts";
import type { TransportLimits } from "./limits.ts";

export interface ConnectCallsOptions {
  readonly pipeline: Pipeline;
  readonly limits: TransportLimits;
  readonly bodies: BodyTurns;
  /** Answers what failed outside of a call. */
  readonly failed: Failed;
}

/** Answers a request for a method, which its path names. */
export type ConnectCalls = (method: DescMethod, request: HttpRequest, response: HttpResponse) => void;

type Handler = (request: HttpRequest, response: HttpResponse) => void;

export function createConnectCalls(options: ConnectCallsOptions): ConnectCalls {
  const { pipeline, limits, bodies, failed } = options;
  const { requestGate, turns } = pipeline;
  const { maxTimeoutMs } = limits;
  const compressions = [compressionGzip, compressionBrotli];
  /** By method, version of HTTP and rank. */
  const handlers = new Map<string, Handler>();

  const contextValues = (request: object): ContextValues => {
    const caller = callerOf(request);
    if (caller === undefined) throw new Error("a call came without its caller");
    const { user, requestId, response } = caller;
    const turn = isUploadTo(pipeline, response.req) ? undefined : bodies.open(shareName(user));
    return createContextValues()
      .set(endableBodyKey, endableBody(response.req, turn))
      .set(responseKey, response)
      .set(userContextKey, user)
      .set(requestIdKey, requestId);
  };

  /** Reading a message of megabytes keeps all waiting, and is root's to do. */
  function make(method: DescMethod, isHttp2: boolean, isRoot: boolean): Handler {
    const maxMessageBytes = isRoot
      ? limits.maxMessageBytes
      : Math.min(limits.maxBodyBytes, limits.maxMessageBytes);
    const bounds = { maxMessageBytes, compressions, turns, ...(!isRoot && { maxStructure }) };
    const routes = guardRoutes(
      boundMessages((router) => pipeline.routes(router, method), bounds),
      failed,
    );
    const calls = { routes, requestGate, contextValues, readMaxBytes: maxMessageBytes, maxTimeoutMs };
    if (isHttp2) return connectNodeAdapter(calls);
    const middleware = expressConnectMiddleware(calls) as (
      ...of: [...Parameters<Handler>, () => void]
    ) => void;
    // It passes on what is no procedure of its own.
    return (request, response) => middleware(request, response, () => undefined);
  }

  return (method, request, response) => {
    const isHttp2 = "stream" in request;
    const isRoot = callerOf(request)?.user.root === true;
    const key = `${methodName(method)} ${isHttp2} ${isRoot}`;
    let handler = handlers.get(key);
    if (handler === undefined) handlers.set(key, (handler = make(method, isHttp2, isRoot)));
    handler(request, response);
  };
}
