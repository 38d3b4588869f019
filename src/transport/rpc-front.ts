/**
 * Connect, gRPC and gRPC-Web in front of the pipeline: plain unary calls by a short way of our own, all else by Connect's.
 * Connect is loaded with the first request that needs it: it costs more than the rest of the start.
 */
import type { ServerResponse } from "node:http";
import { createContextValues } from "@connectrpc/connect";
import type { ContextValues } from "@connectrpc/connect";
import type { BodyTurns } from "../lib/body-turns.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { endBodyKey, endableBody } from "../rpc/endable-body.ts";
import { createPlainUnary } from "../rpc/plain-unary.ts";
import { anonymous, requestIdKey, shareName, userContextKey } from "../rpc/user-context.ts";
import { shareAbortReason } from "./abort-reason.ts";
import type { ConnectCalls } from "./connect-calls.ts";
import { pathOf } from "./http.ts";
import type { Callers, HttpRequest, HttpResponse } from "./http.ts";
import type { TransportLimits } from "./limits.ts";
import { dropUnreadBody } from "./unread-body.ts";

export interface RpcFrontOptions {
  readonly pipeline: Pipeline;
  readonly callers: Callers;
  readonly limits: TransportLimits;
  readonly bodies: BodyTurns;
  /** Answers a path that nobody serves. */
  readonly notFound: (request: HttpRequest, response: HttpResponse) => void;
  /** Answers what failed outside of a call. */
  readonly failed: (request: HttpRequest, response: HttpResponse, error: unknown) => void;
}

export type RpcFront = (request: HttpRequest, response: HttpResponse) => void;

export async function loadRpcFront(options: RpcFrontOptions): Promise<RpcFront> {
  const { createConnectCalls } = await import("./connect-calls.ts");
  const { pipeline, callers, limits, bodies, notFound, failed } = options;
  shareAbortReason();

  const contextValues = (request: HttpRequest): ContextValues => {
    const caller = callers.get(request);
    const isUpload = isUploadTo(pipeline, request);
    const turn = isUpload ? undefined : bodies.open(shareName(caller?.user ?? anonymous));
    const values = createContextValues().set(endBodyKey, endableBody(request, turn));
    return caller === undefined
      ? values
      : values.set(userContextKey, caller.user).set(requestIdKey, caller.requestId);
  };
  const connectCallsUpTo = (readMaxBytes: number): ConnectCalls =>
    createConnectCalls({
      routes: pipeline.routes,
      requestGate: pipeline.requestGate,
      contextValues,
      failed,
      readMaxBytes,
      maxTimeoutMs: limits.maxTimeoutMs,
    });
  const forRoot = connectCallsUpTo(limits.maxMessageBytes);
  // Reading a message of megabytes keeps everybody waiting: that is root's to do.
  const forOthers = connectCallsUpTo(Math.min(limits.maxBodyBytes, limits.maxMessageBytes));

  const plainUnary = createPlainUnary({ pipeline, ...limits });
  return (request, response) => {
    if (!("stream" in request)) dropUnreadBody(request, response as ServerResponse);
    const caller = callers.get(request);
    const connectCalls = caller?.user.root === true ? forRoot : forOthers;
    const handOver = (): void => {
      if (!connectCalls(request, response)) notFound(request, response);
    };
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

/** Whether the request is a stream of messages, each of which is read by itself. */
export function isUploadTo(pipeline: Pipeline, request: HttpRequest): boolean {
  const kind = pipeline.methodAt(pathOf(request))?.methodKind;
  return kind === "client_streaming" || kind === "bidi_streaming";
}
