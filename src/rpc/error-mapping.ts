/** Whatever a handler or a signal may throw, as the one kind of error that callers are shown: `SvcError`. */
import { Code, ConnectError } from "@connectrpc/connect";
import { SvcError } from "../errors.ts";
import { svcErrorOf } from "./connect-errors.ts";

/** `instanceof` that keeps the reason's type. */
export function isSvcError(value: unknown): value is SvcError {
  return value instanceof SvcError;
}

/** The reason of an abort as an error: a deadline, what the aborter said, or the client that went away. */
export function errorOfAbort(reason: unknown): SvcError {
  if (isSvcError(reason)) return reason;
  // Connect calls a connection that broke "aborted".
  const isTold =
    reason instanceof ConnectError && reason.code !== Code.Unknown && reason.code !== Code.Aborted;
  if (isTold) return svcErrorOf(reason);
  if (isNamed(reason, "TimeoutError")) return deadlineExceeded();
  return new SvcError("canceled", "the call was canceled", { cause: reason });
}

export function deadlineExceeded(): SvcError<"deadline_exceeded"> {
  return new SvcError("deadline_exceeded", "the deadline of the call has passed");
}

/**
 * What was thrown, as an error that may be shown. Anything unexpected becomes `internal` with the request's id and
 * keeps what was thrown as its cause, for the log alone (T 49).
 * @param signal the call's: an abort error thrown because of it tells the signal's own reason
 */
export function shownError(thrown: unknown, requestId: string, signal?: AbortSignal): SvcError {
  if (isSvcError(thrown)) return thrown;
  const isAbort = isNamed(thrown, "AbortError");
  if (signal?.aborted === true && (isAbort || thrown === signal.reason)) return errorOfAbort(signal.reason);
  if (isAbort || isNamed(thrown, "TimeoutError")) return errorOfAbort(thrown);
  const isTold =
    thrown instanceof ConnectError && thrown.code !== Code.Unknown && thrown.code !== Code.Internal;
  if (isTold) return svcErrorOf(thrown);
  return internal(thrown, requestId);
}

function internal(cause: unknown, requestId: string): SvcError<"internal"> {
  const message = `internal error; the daemon's log has the cause under request ${requestId}`;
  return new SvcError("internal", message, { cause, payload: { requestId } });
}

function isNamed(value: unknown, name: string): boolean {
  return value instanceof Error && value.name === name;
}
