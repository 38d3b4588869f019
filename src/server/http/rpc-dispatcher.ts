/**
 * Dispatches requests other than REST: plain unary calls to the shared exchange, all others to Connect's
 * adapters; on HTTP/1.1 through an Express application that also serves pages. Adapters and Express are
 * loaded for the first request that needs them, because loading them doubles the start time.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { DescMethod } from "@bufbuild/protobuf";
import type { BodyScheduler } from "../../lib/body-scheduler.ts";
import { dropUnread, leaveOpen } from "../../lib/request-body.ts";
import { createConnectJson, createConnectProto } from "../rpc/connect/connect-protocol.ts";
import type { Exchange } from "../rpc/exchange.ts";
import { createGrpc } from "../rpc/grpc-protocol.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { createProcedureServer } from "../rpc/procedures.ts";
import type { ConnectCalls } from "../rpc/connect/connect-calls.ts";
import { pathOf, type Caller, type HttpRequest, type HttpResponse } from "../rpc/http-request.ts";
import type { TransportLimits } from "./limits.ts";
import { pageAt, type Pages } from "./pages.ts";

export interface RpcDispatcherOptions {
  readonly pipeline: Pipeline;
  readonly exchange: Exchange;
  readonly limits: TransportLimits;
  readonly bodies: BodyScheduler;
  readonly pages: Pages;
  /** Responds to unknown paths. */
  readonly notFound: (request: HttpRequest, response: HttpResponse) => void;
  /** Responds to failures outside of a call. */
  readonly failed: (request: HttpRequest, response: HttpResponse, error: unknown) => void;
}

export type RpcDispatcher = (request: HttpRequest, response: HttpResponse, caller: Caller) => void;

export function createRpcDispatcher(options: RpcDispatcherOptions): RpcDispatcher {
  const { pipeline, exchange, limits, bodies, pages, notFound, failed } = options;

  const connect = new LoadedOnce<ConnectCalls>(async () => {
    const { createConnectCalls } = await import("../rpc/connect/connect-calls.ts");
    return createConnectCalls({
      ...{ pipeline, limits, bodies },
      failed: (response, error) => failed(response.req, response, error),
    });
  });
  const http1 = new LoadedOnce<RequestListener>(async () => {
    const { createHttp1App } = await import("./http1-app.ts");
    return createHttp1App({
      ...{ pages, notFound, failed },
      connect: (request, response, next) => {
        const method = pipeline.methodAt(pathOf(request));
        if (method === undefined) next();
        else answerCall(method, request, response);
      },
    });
  });

  function answerByApp(request: IncomingMessage, response: ServerResponse): void {
    http1.use(
      (app) => app(request, response),
      (error) => failed(request, response, error),
    );
  }

  function answerCall(method: DescMethod, request: HttpRequest, response: HttpResponse): void {
    connect.use(
      (calls) => calls(method, request, response),
      (error) => failed(request, response, error),
    );
  }

  function answerHttp2(request: HttpRequest, response: HttpResponse): void {
    const method = pipeline.methodAt(pathOf(request));
    if (method !== undefined) {
      answerCall(method, request, response);
      return;
    }
    const page = pageAt(pages, request);
    if (page === undefined) notFound(request, response);
    else page(request, response).catch((error: unknown) => failed(request, response, error));
  }

  const known = { pipeline, ...limits };
  const protocols = [createGrpc(known), createConnectProto(known), createConnectJson(known)];
  const procedures = createProcedureServer(exchange, protocols);
  return (request, response, caller) => {
    if (caller.user.peerUid !== undefined) disableCompression(request);
    const passOn = (): void => {
      if ("stream" in request) {
        answerHttp2(request, response);
        return;
      }
      dropUnread(request, response);
      answerByApp(request, response as ServerResponse);
    };
    if (procedures(request, response, caller, passOn)) return;
    if (!("stream" in request)) leaveOpen(request);
    passOn();
  };
}

/** A module that is loaded at its first use. */
class LoadedOnce<T> {
  readonly #load: () => Promise<T>;
  #loading: Promise<T> | undefined;
  #loaded: T | undefined;

  constructor(load: () => Promise<T>) {
    this.#load = load;
  }

  /** Calls `act` at once if it is loaded. @param failed receives errors */
  use(act: (loaded: T) => void, failed: (error: unknown) => void): void {
    if (this.#loaded === undefined) void this.#useOnceLoaded(act, failed);
    else act(this.#loaded);
  }

  async #useOnceLoaded(act: (loaded: T) => void, failed: (error: unknown) => void): Promise<void> {
    try {
      act((this.#loaded = await (this.#loading ??= this.#load())));
    } catch (error) {
      failed(error);
    }
  }
}

/** On the same host, compressing takes longer than copying. */
function disableCompression({ headers }: HttpRequest): void {
  for (const name of ["accept-encoding", "connect-accept-encoding", "grpc-accept-encoding"]) {
    if (name in headers) headers[name] = "identity";
  }
}
