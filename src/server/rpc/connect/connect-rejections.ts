/**
 * Requests that Connect itself rejects after svc has admitted the caller and before the handler runs: unreadable
 * messages, unsupported compressions or timeouts, wrong numbers of messages. Connect aborts the call's signal with the
 * error before it writes the error; a listener there rewrites the error in svc's format.
 */
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { invalidField, type SvcError } from "../../../errors.ts";
import { connectErrorOf, readingError } from "./connect-errors.ts";
import { endableBodyKey } from "./endable-body.ts";
import { errorOfAbort } from "../error-mapping.ts";

/** Stops watching a call; called by {@link stopWatching}. */
const watchKey = createContextKey<(() => void) | undefined>(undefined, { description: "svc rejections" });

/**
 * Reports and rewrites an error of Connect that ends the call before its handler runs.
 * @throws SvcError if the call has already ended, for example by a deadline of zero; for an invalid query
 */
export function watchRejections(context: HandlerContext, onRejected: (error: SvcError) => void): void {
  const { signal, values } = context;
  const rejection = signal.aborted ? errorOfAbort(signal.reason) : queryError(context);
  if (rejection !== undefined) {
    onRejected(rejection);
    throw rejection;
  }
  const onEnded = (): void => {
    if (signal.reason instanceof ConnectError) reword(signal.reason);
    const error = errorOfAbort(signal.reason);
    onRejected(error);
    // Connect checks its deadline only after the body has arrived.
    if (error.code === "deadline_exceeded") values.get(endableBodyKey)?.end(connectErrorOf(error));
  };
  signal.addEventListener("abort", onEnded);
  values.set(watchKey, () => signal.removeEventListener("abort", onEnded));
}

/** Connect reports a message in the query that is not valid base64 as an internal error. */
function queryError({ requestMethod, url }: HandlerContext): SvcError | undefined {
  if (requestMethod !== "GET") return undefined;
  const query = new URL(url).searchParams;
  if (query.get("base64") !== "1") return undefined;
  try {
    base64Decode(query.get("message") ?? "");
    return undefined;
  } catch {
    return invalidField("message", "is not valid base64");
  }
}

/** Rewrites an error of Connect in place, before Connect writes it. */
function reword(error: ConnectError): void {
  const isAboutReading = error.code === Code.Internal || error.code === Code.InvalidArgument;
  const reported = isAboutReading ? readingError(error) : error;
  if (reported instanceof ConnectError) return;
  const { code, rawMessage, message, details } = connectErrorOf(reported);
  Object.assign(error, { code, rawMessage, message, details });
}

/** Stops watching when the handler starts; the pipeline reports later errors. */
export function stopWatching({ values }: HandlerContext): void {
  values.get(watchKey)?.();
}
