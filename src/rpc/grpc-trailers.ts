/**
 * What gRPC says of a failed call goes into HTTP trailers, which clients bound: many take 8 KiB, and a stream with more
 * than 64 KiB of them ends without any status. Errors that need more are said shorter there; gRPC-Web, Connect and REST
 * have them in the body, whole.
 */
import { clone, create } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, type ErrorDetail } from "../../gen/svc/v1/error_pb.ts";
import { setGrpcStatus } from "./grpc-status.ts";

/** Status, message and details, as HTTP/2 counts them. Leaves 1 KiB of what clients take to the rest of the headers. */
export const maxStatusBytes = 7 * 1024;

/** HTTP/2 counts this much for each header besides its name and value (RFC 9113, section 6.5.2). */
const headerOverheadBytes = 32;

/** Characters of the message of an error that does not fit. */
const maxMessageLength = 256;

/** How much of a detail is said. */
interface Extent {
  /** Characters of each text. */
  readonly textLength: number;
  /** Entries of each list. */
  readonly items: number;
}

/** From most to least: first long texts are cut, which leaves names and hashes whole, then lists. */
const extents: readonly Extent[] = [
  ...[4096, 2048, 1024, 512, 256, 128].map((textLength) => ({ textLength, items: Infinity })),
  ...[32, 16, 8, 4, 2, 1].map((items) => ({ textLength: 256, items })),
];

/** The error as gRPC's trailers can carry it: itself, or with as much of our detail as there is room for. */
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

/** At most `length` characters, the last of them an ellipsis when there are more. No character is cut in two. */
function cutText(text: string, length: number): string {
  if (text.length <= length) return text;
  return `${text.slice(0, length - 1).replace(/[\uD800-\uDBFF]$/u, "")}…`;
}
