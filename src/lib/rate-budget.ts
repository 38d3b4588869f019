/** Limits a rate with a token bucket: a burst that refills over time. */
export class RateBudget {
  readonly #burst: number;
  readonly #perSec: number;
  readonly #now: () => number;
  #remaining: number;
  #atMs: number;

  /** @param now milliseconds; if the clock is set back, no time has passed */
  constructor(burst: number, perSec: number, now: () => number) {
    this.#burst = burst;
    this.#perSec = perSec;
    this.#now = now;
    this.#remaining = burst;
    this.#atMs = now();
  }

  /** `false` if the budget is used up. */
  take(): boolean {
    const nowMs = this.#now();
    this.#remaining = Math.min(
      this.#burst,
      this.#remaining + (Math.max(0, nowMs - this.#atMs) / 1000) * this.#perSec,
    );
    this.#atMs = nowMs;
    if (this.#remaining < 1) return false;
    this.#remaining -= 1;
    return true;
  }
}
