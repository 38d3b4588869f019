/** Converts errors of handlers and signals to `SvcError`, the only kind that callers see. */
import { Code, ConnectError } from "@connectrpc/connect";
import { SvcError } from "../../errors.ts";
import { isUnnamedCompression, svcErrorOf } from "./connect/connect-errors.ts";

/**
 * The codes that Connect gives a broken connection. A client that closes an HTTP/2 session may reset its streams with
 * any error, for which Connect uses `internal`.
 */
const disconnectCodes: readonly Code[] = [Code.Unknown, Code.Aborted, Code.Internal];

/** `instanceof` as a type guard. */
export function isSvcError(value: unknown): value is SvcError {
  return value instanceof SvcError;
}

/** Converts an abort reason to an error: a deadline, a given SvcError, or a disconnect. */
export function errorOfAbort(reason: unknown): SvcError {
  if (isSvcError(reason)) return reason;
  if (reason instanceof ConnectError && !disconnectCodes.includes(reason.code)) return svcErrorOf(reason);
  if (isNamed(reason, "TimeoutError")) return deadlineExceeded();
  return new SvcError("canceled", "the call was canceled", { cause: reason });
}

export function deadlineExceeded(): SvcError<"deadline_exceeded"> {
  return new SvcError("deadline_exceeded", "the deadline of the call has passed");
}

/**
 * Converts a thrown value to an error for callers. Unexpected errors become `internal` with the request ID;
 * the original is the cause, for the log only.
 * @param signal the call's signal: an abort error becomes the signal's reason
 */
export function shownError(thrown: unknown, requestId: string, signal?: AbortSignal): SvcError {
  if (isSvcError(thrown)) return thrown;
  const isAbort = isNamed(thrown, "AbortError");
  if (signal?.aborted === true && (isAbort || thrown === signal.reason)) return errorOfAbort(signal.reason);
  if (isAbort || isNamed(thrown, "TimeoutError")) return errorOfAbort(thrown);
  const hasCode =
    thrown instanceof ConnectError && thrown.code !== Code.Unknown && thrown.code !== Code.Internal;
  if (hasCode || isUnnamedCompression(thrown)) return svcErrorOf(thrown);
  return internal(thrown, requestId);
}

function internal(cause: unknown, requestId: string): SvcError<"internal"> {
  const message = `internal error; the daemon's log has the cause under request ${requestId}`;
  return new SvcError("internal", message, { cause, payload: { requestId } });
}

function isNamed(value: unknown, name: string): boolean {
  return value instanceof Error && value.name === name;
}
