/**
 * Requests that Connect answers by itself, between the gate and the handler: messages that cannot be read, packings and
 * deadlines that it does not know, too much or too little of something.
 *
 * It calls bytes that are no message an internal error. They are the caller's mistake, and said as any other breach of the
 * contract. The one place where Connect shows such an error before it writes it down, the same for all of its protocols, is
 * the call's signal, which it aborts with it.
 */
import { Code, ConnectError, createContextKey } from "@connectrpc/connect";
import type { HandlerContext } from "@connectrpc/connect";
import type { SvcError } from "../errors.ts";
import { connectErrorOf, svcErrorOf, unreadableError } from "./connect-errors.ts";
import { errorOfAbort } from "./error-mapping.ts";

/** What ends the watch of a call; {@link handOver} calls it. */
const watchKey = createContextKey<(() => void) | undefined>(undefined, { description: "svc refusals" });

/**
 * Hears of an error of Connect's own that ends the call before its handler has it, and gives it words of ours.
 * @throws SvcError when the call is over already: its deadline may have been none at all
 */
export function watchRefusals(context: HandlerContext, onRefused: (error: SvcError) => void): void {
  const { signal, values } = context;
  const listen = (): void => {
    const reason: unknown = signal.reason;
    if (!(reason instanceof ConnectError)) return;
    const error = unreadableError(reason);
    if (error !== undefined || reason.code === Code.InvalidArgument) {
      const { code, rawMessage, message, details } = connectErrorOf(error ?? svcErrorOf(reason));
      Object.assign(reason, { code, rawMessage, message, details });
    }
    onRefused(error ?? svcErrorOf(reason));
  };
  if (signal.aborted) {
    const error = errorOfAbort(signal.reason);
    onRefused(error);
    throw error;
  }
  signal.addEventListener("abort", listen);
  values.set(watchKey, () => signal.removeEventListener("abort", listen));
}

/** The handler has the call: what becomes of it is the pipeline's to say. */
export function handOver({ values }: HandlerContext): void {
  values.get(watchKey)?.();
}
