/**
 * Requests that Connect answers by itself, between the gate and the handler: messages that cannot be read, packings and
 * deadlines that it does not know, too much or too little of something.
 *
 * It calls bytes that are no message an internal error. They are the caller's mistake, and said as any other breach of the
 * contract. The one place where Connect shows such an error before it writes it down, the same for all of its protocols, is
 * the call's abort, which it calls with it.
 */
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createContextKey } from "@connectrpc/connect";
import type { HandlerContext } from "@connectrpc/connect";
import { invalidField } from "../errors.ts";
import type { SvcError } from "../errors.ts";
import { connectErrorOf, svcErrorOf, unreadableError } from "./connect-errors.ts";
import { endBodyKey } from "./endable-body.ts";
import { errorOfAbort } from "./error-mapping.ts";

/** What ends the watch of a call; {@link handOver} calls it. */
const watchKey = createContextKey<(() => void) | undefined>(undefined, { description: "svc refusals" });

/** What Connect passes to the gate: it ends the call by the same object. */
type Abortable = HandlerContext & { abort: (reason?: unknown) => void };

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
    const error = errorOfAbort(signal.reason);
    onRefused(error);
    // Connect looks at its own deadline only once the body is there.
    if (error.code === "deadline_exceeded") values.get(endBodyKey)?.(connectErrorOf(error));
  };
  const controller = context as Abortable;
  const { abort } = controller;
  controller.abort = (reason) => {
    if (reason instanceof ConnectError) reword(reason, signal);
    abort(reason);
  };
  signal.addEventListener("abort", onEnded);
  values.set(watchKey, () => {
    controller.abort = abort;
    signal.removeEventListener("abort", onEnded);
  });
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
function reword(error: ConnectError, signal: AbortSignal): void {
  const unreadable = unreadableError(error);
  if (unreadable === undefined && error.code !== Code.InvalidArgument) return;
  // What arrives after the deadline is too late, whatever it is.
  const told = signal.aborted ? errorOfAbort(signal.reason) : (unreadable ?? svcErrorOf(error));
  const { code, rawMessage, message, details } = connectErrorOf(told);
  Object.assign(error, { code, rawMessage, message, details });
}

/** The handler has the call: what becomes of it is the pipeline's to say. */
export function handOver({ values }: HandlerContext): void {
  values.get(watchKey)?.();
}
