/**
 * Requests that Connect answers by itself, between the gate and the handler: messages that cannot be read, compressions and
 * deadlines that it does not know, too much or too little of something. Before it writes such an error down, it aborts the
 * call's signal with it, whatever the protocol: there it gets the words that ours would have.
 */
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { invalidField, type SvcError } from "../errors.ts";
import { connectErrorOf, readingError } from "./connect-errors.ts";
import { endableBodyKey } from "./endable-body.ts";
import { errorOfAbort } from "./error-mapping.ts";

/** What ends the watch of a call; {@link handOver} calls it. */
const watchKey = createContextKey<(() => void) | undefined>(undefined, { description: "svc refusals" });

/**
 * Hears of an error of Connect's own that ends the call before its handler has it, and gives it words of ours.
 * @throws SvcError when the call is over already, as its deadline may have been none at all; for a query that Connect chokes on
 */
export function watchRefusals(context: HandlerContext, onRefused: (error: SvcError) => void): void {
  const { signal, values } = context;
  const refusal = signal.aborted ? errorOfAbort(signal.reason) : queryError(context);
  if (refusal !== undefined) {
    onRefused(refusal);
    throw refusal;
  }
  const onEnded = (): void => {
    if (signal.reason instanceof ConnectError) reword(signal.reason);
    const error = errorOfAbort(signal.reason);
    onRefused(error);
    // Connect looks at its own deadline only once the body is there.
    if (error.code === "deadline_exceeded") values.get(endableBodyKey)?.end(connectErrorOf(error));
  };
  signal.addEventListener("abort", onEnded);
  values.set(watchKey, () => signal.removeEventListener("abort", onEnded));
}

/** Connect takes a message in the query that is no base64 for a defect of its own. */
function queryError({ requestMethod, url }: HandlerContext): SvcError | undefined {
  if (requestMethod !== "GET") return undefined;
  const query = new URL(url).searchParams;
  if (query.get("base64") !== "1") return undefined;
  try {
    base64Decode(query.get("message") ?? "");
    return undefined;
  } catch {
    return invalidField("message", "the query's message is no base64");
  }
}

/** Makes an error of Connect's own, which it is about to write down, say what ours would. */
function reword(error: ConnectError): void {
  const isAboutReading = error.code === Code.Internal || error.code === Code.InvalidArgument;
  const told = isAboutReading ? readingError(error) : error;
  if (told instanceof ConnectError) return;
  const { code, rawMessage, message, details } = connectErrorOf(told);
  Object.assign(error, { code, rawMessage, message, details });
}

/** The handler has the call: what becomes of it is the pipeline's to say. */
export function handOver({ values }: HandlerContext): void {
  values.get(watchKey)?.();
}
