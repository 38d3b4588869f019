/** @import { ExitRecord, RestartSpec } from "./supervisor-types.ts" */

/** Minimum delay in milliseconds: a program that exits at once must not keep the host busy. */
export const leastDelayMs = 100;

/**
 * Decides whether and when an app that exited by itself is restarted: exponential back-off with jitter, up to a
 * maximum number of restarts in a row.
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

  /** @param {RestartSpec} spec valid from now on */
  update(spec) {
    this.#spec = spec;
  }

  /**
   * @param {Pick<ExitRecord, "code" | "ranMs">} exit
   * @returns {{ delayMs: number } | { giveUp: string, failed: boolean }} `failed` is false when the app ended as its
   *   policy expects
   */
  next(exit) {
    const { policy, backoffMs, maxBackoffMs, maxRestarts, resetAfterMs } = this.#spec;
    const failed = exit.code !== 0;
    if (policy === "never" || (policy === "on-failure" && !failed)) {
      return { giveUp: `the restart policy is ${policy}`, failed };
    }
    if (exit.ranMs >= resetAfterMs) this.#restarts = 0;
    if (maxRestarts > 0 && this.#restarts >= maxRestarts) {
      return { giveUp: `the app was restarted ${this.#restarts} times in a row`, failed: true };
    }
    // For large exponents the power is infinite, and the maximum applies.
    const full = Math.min(maxBackoffMs, backoffMs * 2 ** this.#restarts);
    this.#restarts++;
    // Between half and all of it, so that apps which failed together do not restart together.
    return { delayMs: Math.max(leastDelayMs, Math.round(full * (0.5 + this.#random() / 2))) };
  }
}
