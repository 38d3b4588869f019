/**
 * Connect, gRPC and gRPC-Web in front of the pipeline: plain unary calls by a short way of our own, all else by Connect's.
 * Connect is loaded with the first request that needs it: it costs more than the rest of the start.
 */
import type { ServerResponse } from "node:http";
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

export type RpcFront = (request: HttpRequest, response: HttpResponse) => void;

export async function loadRpcFront(options: RpcFrontOptions): Promise<RpcFront> {
  const { createConnectCalls } = await import("./connect-calls.ts");
  const { pipeline, callers, limits, notFound, failed } = options;
  shareAbortReason();

  const contextValues = (request: HttpRequest): ContextValues => {
    const caller = callers.get(request);
    const values = createContextValues().set(endBodyKey, endableBody(request));
    return caller === undefined
      ? values
      : values.set(userContextKey, caller.user).set(requestIdKey, caller.requestId);
  };
  const connectCalls = createConnectCalls({
    routes: pipeline.routes,
    requestGate: pipeline.requestGate,
    contextValues,
    failed,
    readMaxBytes: limits.maxMessageBytes,
    maxTimeoutMs: limits.maxTimeoutMs,
  });

  const plainUnary = createPlainUnary({ pipeline, ...limits });
  return (request, response) => {
    if (!("stream" in request)) dropUnreadBody(request, response as ServerResponse);
    const handOver = (): void => {
      if (!connectCalls(request, response)) notFound(request, response);
    };
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
}
