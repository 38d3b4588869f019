/**
 * Slows down clients that present wrong tokens. A valid token always passes: all loopback clients share one
 * address, and must not be able to lock out the owner. Beyond the budget, each wrong token closes the
 * connection.
 */
import { RateBudget } from "../../lib/rate-budget.ts";
import { shareOf, type Connection } from "./connection.ts";
import type { RequestSource } from "./request-source.ts";

export interface FailureThrottleOptions {
  /** Wrong tokens allowed in a burst from one address. */
  readonly burst: number;
  readonly refillPerSec: number;
  /** Number of tracked addresses; the least recent is dropped first. */
  readonly maxAddresses: number;
  readonly now: () => number;
}

export class FailureThrottle {
  readonly #options: FailureThrottleOptions;
  readonly #budgets = new Map<string, RateBudget>();

  constructor(options: FailureThrottleOptions) {
    this.#options = options;
  }

  /** Counts a failure from `address`; `false` if there were too many. */
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

/** The name under which wrong tokens are counted. Clients behind a trusted proxy do not share its limit. */
export function throttleName({ origin, share }: Connection, source: RequestSource): string {
  return source.origin === origin ? share.name : shareOf(source.origin).name;
}
