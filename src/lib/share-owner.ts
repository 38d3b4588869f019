/**
 * The user whose share of the daemon's limits the current work uses. The value follows the work through promises, so
 * that a limiter deep inside knows the user without a uid parameter in each function.
 */
import { AsyncLocalStorage } from "node:async_hooks";

/** The key of root, and of the daemon's internal work. */
export const rootShare = 0;

const owner = new AsyncLocalStorage<number>();

/** Runs `work` on the share of this uid. */
export function onShareOf<T>(uid: number, work: () => T): T {
  return owner.run(uid, work);
}

/** The uid whose share the current work uses; {@link rootShare} outside of any user's work. */
export function shareOwner(): number {
  return owner.getStore() ?? rootShare;
}
