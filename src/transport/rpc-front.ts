/**
 * Connect, gRPC and gRPC-Web in front of the pipeline: plain unary calls by a short way of our own, all else by Connect's
 * middleware with Express behind it on HTTP/1.1, by Connect's node adapter on HTTP/2. Both are loaded with the first
 * request that needs them: together they cost more than the rest of the start.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Request, Response } from "express";
import { createContextValues } from "@connectrpc/connect";
import type { ContextValues } from "@connectrpc/connect";
import type { Pipeline } from "../rpc/pipeline.ts";
import { endBodyKey, endableBody } from "../rpc/endable-body.ts";
import { createPlainUnary } from "../rpc/plain-unary.ts";
import { requestIdKey, userContextKey } from "../rpc/user-context.ts";
import { shareAbortReason } from "./abort-reason.ts";
import type { Callers, HttpRequest, HttpResponse } from "./http.ts";
import type { TransportLimits } from "./limits.ts";
import { dropUnreadBody } from "./unread-body.ts";

export interface RpcFrontOptions {
  readonly pipeline: Pipeline;
  readonly callers: Callers;
  readonly limits: TransportLimits;
  /** Answers a path that nobody serves. */
  readonly notFound: (request: HttpRequest, response: HttpResponse) => void;
  /** Answers what failed outside of a call. */
  readonly failed: (request: HttpRequest, response: HttpResponse, error: unknown) => void;
}

export interface RpcFront {
  http1(request: IncomingMessage, response: ServerResponse): void;
  http2(request: Http2ServerRequest, response: Http2ServerResponse): void;
}

export async function loadRpcFront(options: RpcFrontOptions): Promise<RpcFront> {
  const [{ default: express }, { expressConnectMiddleware }, { connectNodeAdapter }] = await Promise.all([
    import("express"),
    import("@connectrpc/connect-express"),
    import("@connectrpc/connect-node"),
  ]);
  const { pipeline, callers, limits, notFound, failed } = options;
  shareAbortReason();

  const contextValues = (request: HttpRequest): ContextValues => {
    const caller = callers.get(request);
    const values = createContextValues().set(endBodyKey, endableBody(request));
    return caller === undefined
      ? values
      : values.set(userContextKey, caller.user).set(requestIdKey, caller.requestId);
  };
  const adapterOptions = {
    routes: pipeline.routes,
    requestGate: pipeline.requestGate,
    contextValues,
    readMaxBytes: limits.maxMessageBytes,
    maxTimeoutMs: limits.maxTimeoutMs,
  };

  const connect = expressConnectMiddleware(adapterOptions);
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.use((request: IncomingMessage, response: ServerResponse) => notFound(request, response));
  // Express tells an error handler by its four parameters.
  app.use((error: unknown, request: IncomingMessage, response: ServerResponse, _next: unknown) =>
    failed(request, response, error),
  );

  const http1 = (request: IncomingMessage, response: ServerResponse): void => {
    // Calls need nothing of what Express makes of a request, and that costs a fifth of a call.
    connect(request as Request, response as Response, (error?: unknown) => {
      if (error === undefined) app(request as Request, response as Response);
      else failed(request, response, error);
    });
  };
  const http2 = connectNodeAdapter({
    ...adapterOptions,
    fallback: (request, response) => notFound(request, response as HttpResponse),
  });

  const plainUnary = createPlainUnary({ pipeline, ...limits });
  const answer = (request: HttpRequest, response: HttpResponse, handOver: () => void): void => {
    const caller = callers.get(request);
    const isTaken =
      caller !== undefined &&
      plainUnary(request, response, {
        user: caller.user,
        requestId: caller.requestId,
        handOver,
        failed: (error) => failed(request, response, error),
      });
    if (!isTaken) handOver();
  };
  return {
    http1(request, response) {
      dropUnreadBody(request, response);
      answer(request, response, () => http1(request, response));
    },
    http2: (request, response) => answer(request, response, () => http2(request, response)),
  };
}
