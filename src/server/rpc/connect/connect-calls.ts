/**
 * Calls through Connect's adapters: for Express on HTTP/1.1, for Node on HTTP/2. Handlers are created at the
 * first call of a method: creating all takes twice as long as starting Node.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import { createContextValues, type ContextValues } from "@connectrpc/connect";
import { expressConnectMiddleware } from "@connectrpc/connect-express";
import { compressionBrotli, compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import { maxStructure } from "../../../errors.ts";
import type { BodyScheduler } from "../../../lib/body-scheduler.ts";
import { gatedCallerKey, methodName } from "../access.ts";
import { boundMessages } from "./bounded-messages.ts";
import { endableBody, endableBodyKey } from "./endable-body.ts";
import type { Pipeline } from "../pipeline.ts";
import { requestIdKey, shareName, userContextKey } from "../user-context.ts";
import { guardRoutes, responseKey, type Failed } from "./connect-guard.ts";
import { callerOf, isUploadTo, type HttpRequest, type HttpResponse } from "../http-request.ts";

export interface ConnectCallsOptions {
  readonly pipeline: Pipeline;
  readonly limits: Readonly<Record<"maxTimeoutMs" | "maxMessageBytes" | "maxBodyBytes", number>>;
  readonly bodies: BodyScheduler;
  /** Responds to failures outside of a call. */
  readonly failed: Failed;
}

/** Serves a request for a method. */
export type ConnectCalls = (method: DescMethod, request: HttpRequest, response: HttpResponse) => void;

type Handler = (request: HttpRequest, response: HttpResponse) => void;

export function createConnectCalls(options: ConnectCallsOptions): ConnectCalls {
  const { pipeline, limits, bodies, failed } = options;
  const { requestGate, fairQueue } = pipeline;
  const { maxTimeoutMs } = limits;
  const compressions = [compressionGzip, compressionBrotli];
  /** By method, HTTP version, and whether the caller is root. */
  const handlers = new Map<string, Handler>();

  const contextValues = (request: object): ContextValues => {
    const caller = callerOf(request);
    if (caller === undefined) throw new Error("the request has no caller");
    const { user, requestId, response } = caller;
    const turn = isUploadTo(pipeline, response.req) ? undefined : bodies.open(shareName(user));
    return createContextValues()
      .set(endableBodyKey, endableBody(response.req, turn))
      .set(responseKey, response)
      .set(gatedCallerKey, caller)
      .set(userContextKey, user)
      .set(requestIdKey, requestId);
  };

  /** Only root may send messages of megabytes, because parsing them blocks the event loop. */
  function make(method: DescMethod, isHttp2: boolean, isRoot: boolean): Handler {
    const maxMessageBytes = isRoot
      ? limits.maxMessageBytes
      : Math.min(limits.maxBodyBytes, limits.maxMessageBytes);
    const bounds = { maxMessageBytes, compressions, fairQueue, ...(!isRoot && { maxStructure }) };
    const routes = guardRoutes(
      boundMessages((router) => pipeline.routes(router, method), bounds),
      failed,
    );
    const calls = { routes, requestGate, contextValues, readMaxBytes: maxMessageBytes, maxTimeoutMs };
    if (isHttp2) return connectNodeAdapter(calls);
    const middleware = expressConnectMiddleware(calls) as (
      ...of: [...Parameters<Handler>, () => void]
    ) => void;
    // The middleware calls `next` for other procedures.
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
