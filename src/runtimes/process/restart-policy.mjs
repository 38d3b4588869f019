/** @import { ExitRecord, RestartSpec } from "./supervisor-types.ts" */

/**
 * Decides whether and when an app that exited by itself runs again: exponential back-off with jitter, and an end to it
 * after too many restarts in a row.
 */
export class RestartPolicy {
  #spec;
  #random;
  /** Restarts since the app last ran for `resetAfterMs`. */
  #restarts = 0;

  /**
   * @param {RestartSpec} spec
   * @param {() => number} [random] 0 to 1
   */
  constructor(spec, random = Math.random) {
    this.#spec = spec;
    this.#random = random;
  }

  /** @param {RestartSpec} spec holds from now on */
  update(spec) {
    this.#spec = spec;
  }

  /**
   * @param {Pick<ExitRecord, "code" | "ranMs">} exit
   * @returns {{ delayMs: number } | { giveUp: string, failed: boolean }} `failed` is false when the app ended as it was meant to
   */
  next(exit) {
    const { policy, backoffMs, maxBackoffMs, maxRestarts, resetAfterMs } = this.#spec;
    const failed = exit.code !== 0;
    if (policy === "never" || (policy === "on-failure" && !failed)) {
      return { giveUp: `its restart policy is ${policy}`, failed };
    }
    if (exit.ranMs >= resetAfterMs) this.#restarts = 0;
    if (maxRestarts > 0 && this.#restarts >= maxRestarts) {
      return { giveUp: `it was restarted ${this.#restarts} times in a row`, failed: true };
    }
    // A large exponent is infinite at worst, which the bound takes care of.
    const full = Math.min(maxBackoffMs, backoffMs * 2 ** this.#restarts);
    this.#restarts++;
    // Between half and all of it, so that apps which failed together do not come back together.
    return { delayMs: Math.round(full * (0.5 + this.#random() / 2)) };
  }
}
