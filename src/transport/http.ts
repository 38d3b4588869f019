/** What an HTTP/1.1 and an HTTP/2 request have in common for those who answer it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { HttpCaller } from "../rpc/http-call.ts";
import type { Pipeline } from "../rpc/pipeline.ts";

export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;

export interface Caller extends HttpCaller {
  readonly response: HttpResponse;
}

/**
 * Where a request keeps its caller: a WeakMap of so many short-lived keys costs the garbage collector more than the rest of the
 * front door costs in all.
 */
const callerKey = Symbol("caller");

/** The caller of a request under way, once it is known. */
export function callerOf(request: object): Caller | undefined {
  return (request as Record<symbol, Caller | undefined>)[callerKey];
}

export function keepCaller(request: object, caller: Caller): void {
  (request as Record<symbol, Caller>)[callerKey] = caller;
}

/** The path of a request as it was sent, without its query. */
export function pathOf(request: HttpRequest): string {
  const target = request.url ?? "";
  const question = target.indexOf("?");
  return question < 0 ? target : target.slice(0, question);
}

/** The `Host` of a request; HTTP/2 calls it `:authority`. */
export function hostOf(request: HttpRequest): string | undefined {
  const { ":authority": authority, host } = request.headers;
  return typeof authority === "string" ? authority : host;
}

/** Gives a request up: its connection goes (HTTP/1.1), or its stream (HTTP/2), of which the request is a mere view. */
export function breakOff(request: HttpRequest): void {
  if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
  else request.destroy();
}

/** Ends the connection of a request as soon as it is answered. */
export function disconnectAfter(request: HttpRequest, response: HttpResponse): void {
  // An answered stream does not know its session any more, and the socket of a session is a proxy that refuses to be closed.
  const session = "stream" in request ? request.stream.session : undefined;
  response.once("close", () => {
    if (session === undefined) request.socket.destroySoon();
    else session.close();
  });
}

/** Whether the request is a stream of messages, each of which is read by itself. */
export function isUploadTo(pipeline: Pipeline, request: HttpRequest): boolean {
  const kind = pipeline.methodAt(pathOf(request))?.methodKind;
  return kind === "client_streaming" || kind === "bidi_streaming";
}
