/** The common interface of HTTP/1.1 and HTTP/2 requests. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { HttpCaller } from "./http-call.ts";
import type { Pipeline } from "./pipeline.ts";

export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;

declare const isCanonical: unique symbol;
/**
 * A raw canonical path. Routing requires this type, so that all parts of the daemon interpret a path in the
 * same way.
 */
export type CanonicalPath = string & { readonly [isCanonical]: true };

export interface Caller extends HttpCaller {
  /** Path of the request, without its query. */
  readonly path: CanonicalPath;
  readonly response: HttpResponse;
}

/**
 * Property for the caller of a request: a WeakMap with many short-lived keys would cost more garbage
 * collection than the rest of the gateway.
 */
const callerKey = Symbol("caller");

/** The caller of a request, once identified. */
export function callerOf(request: object): Caller | undefined {
  return (request as Record<symbol, Caller | undefined>)[callerKey];
}

export function setCaller(request: object, caller: Caller): void {
  (request as Record<symbol, Caller>)[callerKey] = caller;
}

/** The raw path of a request, without its query. */
export function pathOf(request: HttpRequest): string {
  const target = request.url ?? "";
  const question = target.indexOf("?");
  return question < 0 ? target : target.slice(0, question);
}

/** The `Host` of a request; `:authority` in HTTP/2. */
export function hostOf(request: HttpRequest): string | undefined {
  const { ":authority": authority, host } = request.headers;
  return typeof authority === "string" ? authority : host;
}

/** Aborts a request: closes its connection (HTTP/1.1) or its stream (HTTP/2). */
export function breakOff(request: HttpRequest): void {
  if ("stream" in request) request.stream.close(constants.NGHTTP2_CANCEL);
  else request.destroy();
}

/** Closes the connection after the response. */
export function disconnectAfter(request: HttpRequest, response: HttpResponse): void {
  // Read now: a stream loses its session after the response, and a session's socket is a proxy that cannot be
  // closed.
  const session = "stream" in request ? request.stream.session : undefined;
  response.once("close", () => {
    if (session === undefined) request.socket.destroySoon();
    else session.close();
  });
}

/** Whether the request is a stream of messages, each read separately. */
export function isUploadTo(pipeline: Pipeline, request: HttpRequest): boolean {
  const kind = pipeline.methodAt(pathOf(request))?.methodKind;
  return kind === "client_streaming" || kind === "bidi_streaming";
}
