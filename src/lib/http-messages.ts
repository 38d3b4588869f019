/** A request and its response: the common part of Node's `http` and `http2` that handlers need. */
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

/** HTTP/2 has its own kind of stream, hence only part of `Writable`. */
export interface OutgoingResponse extends Pick<
  Writable,
  "on" | "once" | "prependOnceListener" | "removeListener" | "write" | "end"
> {
  readonly headersSent: boolean;
  /** Bytes that were written but not sent. */
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

/** The declared size of a body; undefined if unknown, 0 without a body. */
export function declaredSize(request: IncomingRequest): number | undefined {
  const length = request.headers["content-length"];
  if (length !== undefined) return Number(length);
  // HTTP/2 declares with the headers whether a body follows.
  if (request.httpVersionMajor >= 2) return streamOf(request)?.endAfterHeaders === true ? 0 : undefined;
  return request.headers["transfer-encoding"] === undefined ? 0 : undefined;
}

/** Turns of the event loop in which a reset is expected: it is written, and read, a turn or two after the end. */
const resetTurns = 6;

/**
 * Whether the client canceled a request although its body is complete. Node's HTTP/2 client, and so its gRPC client,
 * cancels a request with an end and a reset immediately after it.
 */
export async function isCanceledByClient(request: IncomingRequest): Promise<boolean> {
  if (request.httpVersionMajor < 2) return false;
  const stream = streamOf(request);
  for (let turn = 0; turn < resetTurns && stream?.aborted === false; turn++) await nextTurn();
  return stream?.aborted === true;
}

interface RequestStream {
  readonly aborted: boolean;
  readonly endAfterHeaders: boolean;
}

/** Node's stream of an HTTP/2 request. */
function streamOf(request: IncomingRequest): RequestStream | undefined {
  return (request as IncomingRequest & { readonly stream?: RequestStream }).stream;
}

/** The media type of the body in lower case, without parameters; empty if not set. */
export function mediaType(request: IncomingRequest): string {
  const value = request.headers["content-type"];
  return typeof value === "string" ? (value.split(";", 1)[0] ?? "").trim().toLowerCase() : "";
}

/** HTTP/2's INTERNAL_ERROR (RFC 9113, section 7). */
const streamInternalError = 0x2;

/**
 * For a response whose status is already sent: only a broken connection, or a reset stream, can still tell the client
 * that it is incomplete.
 */
export function abortResponse(response: OutgoingResponse): void {
  if (response.stream === undefined) response.destroy();
  else response.stream.close(streamInternalError);
}
