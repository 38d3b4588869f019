/** REST over node's `http` and `http2` servers: one message each way by the exchange that all protocols share, streams here. */
import type { Message } from "@bufbuild/protobuf";
import type { IncomingRequest, OutgoingResponse } from "../lib/http-messages.ts";
import { dropUnread } from "../lib/request-body.ts";
import type { Exchange } from "../rpc/exchange.ts";
import type { HttpCall, HttpCaller } from "../rpc/http-call.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { bindRequest } from "./bind.ts";
import { answerHeaders, sendStream, uploadMessages, type AnswerHeaders } from "./body-streams.ts";
import { JsonWriter } from "./json-writer.ts";
import { RestProtocol, type RestLimits, type RestOperation } from "./rest-protocol.ts";
import type { Route } from "./route.ts";

export interface RestHandlerOptions extends RestLimits {
  readonly routes: Iterable<Route>;
  readonly exchange: Exchange;
  readonly pipeline: Pick<Pipeline, "invoke" | "invokeStream" | "turns">;
  /** Paths below it are REST's, whether a route has them or not; elsewhere the routes' own without variables. Default `/v1/`. */
  readonly prefix?: string;
}

/** Serves a request, or answers `false` when its path is not REST's. */
export type RestHandler = (
  request: IncomingRequest,
  response: OutgoingResponse,
  caller: HttpCaller,
) => boolean;

/** A REST handler for HTTP/1.1 and HTTP/2 servers alike. */
export function createRestHandler(options: RestHandlerOptions): RestHandler {
  const { routes, exchange, pipeline, prefix = "/v1/" } = options;
  const writer = new JsonWriter();
  const protocol = new RestProtocol(routes, writer, pipeline.turns, options);
  const outside = new Set(
    Array.from(routes, ({ template }) => template.source).filter((path) => !path.startsWith(prefix)),
  );

  async function stream(operation: RestOperation, call: HttpCall): Promise<void> {
    const { route, segments, query } = operation;
    const { request, response, caller } = call;
    const { method } = route;
    if (method.methodKind === "client_streaming") {
      const first = bindRequest({ route, segments, query, body: undefined });
      const messages = uploadMessages(route, first, request);
      caller.isNoted = true;
      const answer = await pipeline.invoke(method, messages, call);
      dropUnread(request, response);
      await protocol.send(operation, answer, call);
      return;
    }
    const message = (await exchange.read(protocol, operation, call)) as Message;
    caller.isNoted = true;
    const answers = pipeline.invokeStream(method, message, call);
    const headers = (): AnswerHeaders => answerHeaders(call.requestId, call.responseHeader);
    await sendStream({ route, response, headers, writer }, answers, request.method === "HEAD");
  }

  return (request, response, caller) => {
    const { url = "" } = request;
    const isRest = url.startsWith(prefix) || outside.has(url.split("?", 1)[0] ?? "");
    return isRest && exchange.serve(protocol, request, response, caller, stream);
  };
}
