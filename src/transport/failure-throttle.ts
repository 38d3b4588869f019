/**
 * Slows down who presents wrong tokens (T 12). A right token always passes: on loopback everybody has one address, and
 * a stranger must not be able to lock the owner out. Past the budget each wrong one costs its sender the connection.
 */
import { RateBudget } from "../lib/rate-budget.ts";

export interface FailureThrottleOptions {
  /** Wrong tokens in a burst from one address. */
  readonly burst: number;
  readonly refillPerSec: number;
  /** Addresses that are remembered; the least recent is forgotten first. */
  readonly maxAddresses: number;
  readonly now: () => number;
}

export class FailureThrottle {
  readonly #options: FailureThrottleOptions;
  readonly #budgets = new Map<string, RateBudget>();

  constructor(options: FailureThrottleOptions) {
    this.#options = options;
  }

  /** Counts a failure from `address`; `false` when there were too many. */
  take(address: string): boolean {
    const { burst, refillPerSec, maxAddresses, now } = this.#options;
    const budget = this.#budgets.get(address) ?? new RateBudget(burst, refillPerSec, now);
    this.#budgets.delete(address);
    this.#budgets.set(address, budget);
    if (this.#budgets.size > maxAddresses) {
      const [oldest] = this.#budgets.keys();
      if (oldest !== undefined) this.#budgets.delete(oldest);
    }
    return budget.take();
  }
}
