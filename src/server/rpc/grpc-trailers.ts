/**
 * gRPC sends errors in HTTP trailers, whose size clients limit: many accept 8 KiB, and above 64 KiB the
 * stream ends without a status. Larger errors are shortened for gRPC; gRPC-Web, Connect and REST send them in
 * the body.
 */
import { clone, create } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, type ErrorDetail } from "../../../gen/svc/v1/error_pb.ts";
import { setGrpcStatus } from "./grpc-status.ts";

/** Limit for status, message and details, as HTTP/2 counts them. Leaves 1 KiB for other headers. */
export const maxStatusBytes = 7 * 1024;

/** HTTP/2 adds this per header to its name and value (RFC 9113, section 6.5.2). */
const headerOverheadBytes = 32;

/** Maximum characters of a shortened message. */
const maxMessageLength = 256;

/** Limits for a shortened detail. */
interface Extent {
  /** Characters of each text. */
  readonly textLength: number;
  /** Entries of each list. */
  readonly items: number;
}

/** In order of shortening: long texts first, so that names and hashes stay complete, then lists. */
const extents: readonly Extent[] = [
  ...[4096, 2048, 1024, 512, 256, 128].map((textLength) => ({ textLength, items: Infinity })),
  ...[32, 16, 8, 4, 2, 1].map((items) => ({ textLength: 256, items })),
];

/** The error if it fits into gRPC's trailers, else a copy with a shortened detail. */
export function fitTrailers(error: ConnectError): ConnectError {
  if (statusBytes(error) <= maxStatusBytes) return error;
  const message = cutText(error.rawMessage, maxMessageLength);
  const [detail] = error.findDetails(ErrorDetailSchema);
  if (detail === undefined) return new ConnectError(message, error.code);
  for (const extent of extents) {
    const shortened = clone(ErrorDetailSchema, detail);
    shorten(shortened, extent);
    const fitted = withDetail(message, error, shortened);
    if (statusBytes(fitted) <= maxStatusBytes) return fitted;
  }
  return withDetail(message, error, create(ErrorDetailSchema, { reason: detail.reason }));
}

function withDetail(message: string, { code }: ConnectError, value: ErrorDetail): ConnectError {
  return new ConnectError(message, code, undefined, [{ desc: ErrorDetailSchema, value }]);
}

function statusBytes(error: ConnectError): number {
  let bytes = 0;
  for (const [name, value] of setGrpcStatus(new Headers(), error))
    bytes += name.length + value.length + headerOverheadBytes;
  return bytes;
}

/** Shortens all texts and lists of a message, or of a list, in place. */
function shorten(holder: Record<string, unknown> | unknown[], extent: Extent): void {
  if (Array.isArray(holder)) holder.length = Math.min(holder.length, extent.items);
  for (const [key, value] of Object.entries(holder)) {
    if (typeof value === "string")
      (holder as Record<string, unknown>)[key] = cutText(value, extent.textLength);
    else if (typeof value === "object" && value !== null)
      shorten(value as Record<string, unknown> | unknown[], extent);
  }
}

/** Cuts a text to `length` characters, with an ellipsis at the end. Characters stay complete. */
function cutText(text: string, length: number): string {
  if (text.length <= length) return text;
  return `${text.slice(0, length - 1).replace(/[\uD800-\uDBFF]$/u, "")}…`;
}
