/** @import { ExitRecord, RestartSpec } from "./supervisor-types.ts" */

/**
 * Decides whether and when an app that exited by itself runs again: exponential back-off with jitter, and an end to it
 * when too many restarts fall into one window.
 */
export class RestartPolicy {
  #spec;
  #random;
  /** Times of the restarts in the current window, milliseconds on the caller's monotonic clock. @type {number[]} */
  #restarts = [];

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
   * @param {Pick<ExitRecord, "code">} exit
   * @param {number} nowMs
   * @returns {{ delayMs: number } | { giveUp: string, failed: boolean }} `failed` is false when the app ended as it was meant to
   */
  next(exit, nowMs) {
    const { policy, backoffMs, maxBackoffMs, maxRestarts, windowMs } = this.#spec;
    const failed = exit.code !== 0;
    if (policy === "never" || (policy === "on-failure" && !failed)) {
      return { giveUp: `it exited and its restart policy is ${policy}`, failed };
    }
    this.#restarts = this.#restarts.filter((at) => nowMs - at < windowMs);
    if (this.#restarts.length >= maxRestarts) {
      return {
        giveUp: `it exited ${maxRestarts + 1} times within ${Math.round(windowMs / 1000)} s`,
        failed: true,
      };
    }
    const full = Math.min(maxBackoffMs, backoffMs * 2 ** this.#restarts.length);
    this.#restarts.push(nowMs);
    // Between half and all of it, so that apps which failed together do not come back together.
    return { delayMs: Math.round(full * (0.5 + this.#random() / 2)) };
  }
}
