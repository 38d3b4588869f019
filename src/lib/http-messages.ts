/** A request and its response as node's `http` and `http2` servers both have them, as much of them as those who answer need. */
import type { IncomingHttpHeaders } from "node:http";
import type { Readable, Writable } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";

export interface IncomingRequest extends Readable {
  readonly method?: string | undefined;
  /** The request target. */
  readonly url?: string | undefined;
  readonly httpVersionMajor: number;
  readonly headers: IncomingHttpHeaders;
}

/** HTTP/2's is a stream of its own kind, hence not all of `Writable`. */
export interface OutgoingResponse extends Pick<
  Writable,
  "on" | "once" | "prependOnceListener" | "removeListener" | "write" | "end"
> {
  readonly headersSent: boolean;
  /** What was written and has not left. */
  readonly writableLength: number;
  setHeader(name: string, value: string | number): unknown;
  appendHeader(name: string, value: string): unknown;
  writeHead(status: number, headers?: Record<string, string | number>): unknown;
  addTrailers(trailers: Record<string, string>): unknown;
  destroy(error?: Error): unknown;
  /** HTTP/1.1 only: holds writes back, to send them together. */
  cork?(): void;
  uncork?(): void;
  /** HTTP/2 only. */
  readonly stream?: { close(code: number): void };
}

/** The declared size of a body; undefined when it is of unknown size, 0 when there is none. */
export function declaredSize(request: IncomingRequest): number | undefined {
  const length = request.headers["content-length"];
  if (length !== undefined) return Number(length);
  // HTTP/2 says with the headers whether a body follows.
  if (request.httpVersionMajor >= 2) return streamOf(request)?.endAfterHeaders === true ? 0 : undefined;
  return request.headers["transfer-encoding"] === undefined ? 0 : undefined;
}

/**
 * Whether a body that has come to its end was given up all the same. Node's client for HTTP/2, and with it that of gRPC, cancels
 * a request by an end and a reset in one breath.
 */
export async function isGivenUp(request: IncomingRequest): Promise<boolean> {
  if (request.httpVersionMajor < 2) return false;
  await nextTurn();
  return streamOf(request)?.aborted === true;
}

interface RequestStream {
  readonly aborted: boolean;
  readonly endAfterHeaders: boolean;
}

/** Node's, of a request that came over HTTP/2. */
function streamOf(request: IncomingRequest): RequestStream | undefined {
  return (request as IncomingRequest & { readonly stream?: RequestStream }).stream;
}

/** The media type of the body in lower case, without its parameters; empty when none is given. */
export function mediaType(request: IncomingRequest): string {
  const value = request.headers["content-type"];
  return typeof value === "string" ? (value.split(";", 1)[0] ?? "").trim().toLowerCase() : "";
}

/** HTTP/2's INTERNAL_ERROR (RFC 9113, section 7). */
const streamInternalError = 0x2;

/** For an answer whose status is out: only a broken connection, or a reset stream, can still say that it is not whole. */
export function breakOffAnswer(response: OutgoingResponse): void {
  if (response.stream === undefined) response.destroy();
  else response.stream.close(streamInternalError);
}
