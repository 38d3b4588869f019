/** REST handler for `http` and `http2` servers. Unary calls use the exchange that all protocols share; streams are here. */
import type { Message } from "@bufbuild/protobuf";
import type { IncomingRequest, OutgoingResponse } from "../../lib/http-messages.ts";
import { dropUnread } from "../../lib/request-body.ts";
import type { Exchange } from "../rpc/exchange.ts";
import type { HttpCall } from "../rpc/http-call.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { bindRequest } from "./bind.ts";
import { responseHeaders, sendStream, uploadMessages, type ResponseHeaders } from "./body-streams.ts";
import { JsonWriter } from "./json-writer.ts";
import { RestProtocol, type RestCaller, type RestLimits, type RestOperation } from "./rest-protocol.ts";
import type { Route, Router } from "./router.ts";

export interface RestHandlerOptions extends RestLimits {
  readonly routes: Iterable<Route>;
  /** The routes to serve. */
  readonly router: Router;
  readonly exchange: Exchange;
  readonly pipeline: Pick<Pipeline, "invoke" | "invokeStream" | "fairQueue" | "streamKeepAliveMs">;
  /** REST handles all paths below this prefix. Elsewhere, it handles only routes without variables. Default `/v1/`. */
  readonly prefix?: string;
}

/** Handles a request, or returns false if its path does not belong to REST. */
export interface RestHandler {
  (request: IncomingRequest, response: OutgoingResponse, caller: RestCaller): boolean;
  /** Whether the path belongs to REST. */
  readonly has: (path: string) => boolean;
}

/** Creates a REST handler for HTTP/1.1 and HTTP/2 servers. */
export function createRestHandler(options: RestHandlerOptions): RestHandler {
  const { routes, router, exchange, pipeline, prefix = "/v1/" } = options;
  const writer = new JsonWriter();
  const protocol = new RestProtocol(router, writer, pipeline.fairQueue, options);
  const outside = new Set<string>(
    Array.from(routes, ({ template }) => template.source).filter((path) => !path.startsWith(prefix)),
  );

  async function stream(operation: RestOperation, call: HttpCall): Promise<void> {
    const { route, segments, query } = operation;
    const { request, response, caller } = call;
    const { method } = route;
    if (method.methodKind === "client_streaming") {
      const first = bindRequest({ route, segments, query, body: undefined });
      const uploaded = uploadMessages(route, first, request);
      caller.isRecorded = true;
      const message = await pipeline.invoke(method, uploaded, call);
      dropUnread(request, response);
      await protocol.send(operation, message, call);
      return;
    }
    const message = (await exchange.read(protocol, operation, call)) as Message;
    caller.isRecorded = true;
    const messages = pipeline.invokeStream(method, message, call);
    const keepAliveMs = pipeline.streamKeepAliveMs;
    const headers = (): ResponseHeaders => responseHeaders(call.requestId, call.responseHeader);
    await sendStream({ route, response, headers, writer, keepAliveMs }, messages, request.method === "HEAD");
  }

  const has = (path: string): boolean => path.startsWith(prefix) || outside.has(path);
  const handle = (request: IncomingRequest, response: OutgoingResponse, caller: RestCaller): boolean =>
    has(caller.path) && exchange.serve(protocol, request, response, caller, stream);
  return Object.assign(handle, { has });
}
