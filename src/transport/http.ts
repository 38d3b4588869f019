/** What an HTTP/1.1 and an HTTP/2 request have in common for those who answer it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { UserContext } from "../rpc/user-context.ts";

export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;

/** The caller of a request, known before anything else of it is read. */
export interface Caller {
  readonly user: UserContext;
  readonly requestId: string;
}

/** The callers of the requests under way. */
export type Callers = WeakMap<object, Caller>;

/** The `Host` of a request; HTTP/2 calls it `:authority`. */
export function hostOf(request: HttpRequest): string | undefined {
  const { ":authority": authority, host } = request.headers;
  return typeof authority === "string" ? authority : host;
}

/** Ends the connection of an answered request. */
export function disconnect(request: HttpRequest): void {
  // The socket of an HTTP/2 session is a proxy that refuses to be closed.
  if ("stream" in request) request.stream.session?.close();
  else request.socket.destroySoon();
}
