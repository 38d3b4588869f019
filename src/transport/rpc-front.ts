/**
 * What is not REST: unary calls in their plain form by the exchange that REST shares, all else by Connect's, with the pages
 * beside it, in an Express application on HTTP/1.1 and in Connect's adapter for node on HTTP/2. Each is loaded with the first
 * request that needs it: they cost more than the rest of the start.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { createContextValues, type ContextValues } from "@connectrpc/connect";
import type { ConnectNodeAdapterOptions } from "@connectrpc/connect-node";
import { maxStructure } from "../errors.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import { dropUnread, leaveOpen } from "../lib/request-body.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { boundMessages } from "../rpc/bounded-messages.ts";
import { endableBody, endableBodyKey } from "../rpc/endable-body.ts";
import { createConnectJson, createConnectProto } from "../rpc/connect-protocol.ts";
import type { Exchange } from "../rpc/exchange.ts";
import { createGrpc } from "../rpc/grpc-protocol.ts";
import { createProcedures } from "../rpc/procedures.ts";
import { requestIdKey, shareName, userContextKey } from "../rpc/user-context.ts";
import { guardRoutes, responseKey } from "./connect-guard.ts";
import { pathOf, type Caller, type Callers, type HttpRequest, type HttpResponse } from "./http.ts";
import type { TransportLimits } from "./limits.ts";
import { pageAt, type Pages } from "./pages.ts";

export interface RpcFrontOptions {
  readonly pipeline: Pipeline;
  readonly exchange: Exchange;
  readonly callers: Callers;
  readonly limits: TransportLimits;
  readonly bodies: BodyTurns;
  readonly pages: Pages;
  /** Answers a path that nobody serves. */
  readonly notFound: (request: HttpRequest, response: HttpResponse) => void;
  /** Answers what failed outside of a call. */
  readonly failed: (request: HttpRequest, response: HttpResponse, error: unknown) => void;
}

export type RpcFront = (request: HttpRequest, response: HttpResponse, caller: Caller) => void;

export async function loadRpcFront(options: RpcFrontOptions): Promise<RpcFront> {
  const { connectNodeAdapter, compressionGzip, compressionBrotli } = await import("@connectrpc/connect-node");
  const { pipeline, exchange, callers, limits, bodies, pages, notFound, failed } = options;

  const contextValues = (request: object): ContextValues => {
    const caller = callers.get(request);
    if (caller === undefined) throw new Error("a call came without its caller");
    const { user, requestId, response } = caller;
    const turn = isUploadTo(pipeline, response.req) ? undefined : bodies.open(shareName(user));
    return createContextValues()
      .set(endableBodyKey, endableBody(response.req, turn))
      .set(responseKey, response)
      .set(userContextKey, user)
      .set(requestIdKey, requestId);
  };
  const { requestGate, turns } = pipeline;
  const { maxTimeoutMs } = limits;
  const guarded = (routes: Pipeline["routes"]): Pipeline["routes"] =>
    guardRoutes(routes, (response, error) => failed(response.req, response, error));
  /**
   * One for root, and one for everybody else: reading a message of megabytes keeps all waiting, and is root's to do. Each is made
   * for the first who needs it, as that takes longer than Node's own start: there is a handler for each method and protocol.
   */
  function byRank<T extends object>(make: (calls: ConnectNodeAdapterOptions) => T): (request: object) => T {
    const compressions = [compressionGzip, compressionBrotli];
    const upTo = (maxMessageBytes: number, most: { maxStructure?: number }): T => {
      const routes = guarded(
        boundMessages(pipeline.routes, { maxMessageBytes, compressions, turns, ...most }),
      );
      return make({ routes, requestGate, contextValues, readMaxBytes: maxMessageBytes, maxTimeoutMs });
    };
    const othersBytes = Math.min(limits.maxBodyBytes, limits.maxMessageBytes);
    let [forRoot, forOthers]: (T | undefined)[] = [];
    return (request) =>
      callers.get(request)?.user.root === true
        ? (forRoot ??= upTo(limits.maxMessageBytes, {}))
        : (forOthers ??= upTo(othersBytes, { maxStructure }));
  }

  /** What plain unary calls and HTTP/2 do without, and which takes as long to load as Node to start. */
  async function loadHttp1(): Promise<RequestListener> {
    const [{ createHttp1App }, { expressConnectMiddleware }] = await Promise.all([
      import("./http1-app.ts"),
      import("@connectrpc/connect-express"),
    ]);
    const expressCalls = byRank(expressConnectMiddleware);
    return createHttp1App({
      pages,
      connect: (request, response, next) => expressCalls(request)(request, response, next),
      notFound,
      failed,
    });
  }
  let http1: RequestListener | undefined;
  let http1Loading: Promise<RequestListener> | undefined;
  async function answerOnceLoaded(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      http1 = await (http1Loading ??= loadHttp1());
      http1(request, response);
    } catch (error) {
      failed(request, response, error);
    }
  }
  const nodeCalls = byRank((calls) =>
    connectNodeAdapter({
      ...calls,
      fallback(request, nodeResponse) {
        const response = nodeResponse as HttpResponse;
        const page = pageAt(pages, request);
        if (page === undefined) notFound(request, response);
        else page(request, response).catch((error: unknown) => failed(request, response, error));
      },
    }),
  );

  const known = { pipeline, ...limits };
  const protocols = [createGrpc(known), createConnectProto(known), createConnectJson(known)];
  const procedures = createProcedures(exchange, protocols);
  return (request, response, caller) => {
    if (caller.user.peerUid !== undefined) leaveUnpacked(request);
    const handOver = (): void => {
      if ("stream" in request) {
        nodeCalls(request)(request, response);
      } else {
        dropUnread(request, response);
        if (http1 === undefined) void answerOnceLoaded(request, response as ServerResponse);
        else http1(request, response as ServerResponse);
      }
    };
    if (procedures(request, response, caller, handOver)) return;
    if (!("stream" in request)) leaveOpen(request);
    handOver();
  };
}

/** To pack what stays on this machine takes longer than to copy it. */
function leaveUnpacked({ headers }: HttpRequest): void {
  for (const name of ["accept-encoding", "connect-accept-encoding", "grpc-accept-encoding"]) {
    if (name in headers) headers[name] = "identity";
  }
}

/** Whether the request is a stream of messages, each of which is read by itself. */
export function isUploadTo(pipeline: Pipeline, request: HttpRequest): boolean {
  const kind = pipeline.methodAt(pathOf(request))?.methodKind;
  return kind === "client_streaming" || kind === "bidi_streaming";
}
