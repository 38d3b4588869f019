/** How often something may happen: a burst that fills up again with time (a token bucket). */
export class RateBudget {
  readonly #burst: number;
  readonly #perSec: number;
  readonly #now: () => number;
  #left: number;
  #atMs: number;

  /** @param now milliseconds; time that a clock is set back is time that did not pass */
  constructor(burst: number, perSec: number, now: () => number) {
    this.#burst = burst;
    this.#perSec = perSec;
    this.#now = now;
    this.#left = burst;
    this.#atMs = now();
  }

  /** `false` when the budget is used up. */
  take(): boolean {
    const nowMs = this.#now();
    this.#left = Math.min(this.#burst, this.#left + (Math.max(0, nowMs - this.#atMs) / 1000) * this.#perSec);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
