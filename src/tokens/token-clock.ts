/** Time as tokens go by it. */
export interface TokenClock {
  /** Unix milliseconds: may step. */
  now(): number;
  /** Milliseconds that only grow, from any origin. */
  elapsedMs(): number;
  /** Calls `action` every so often until disposed. */
  every(intervalMs: number, action: () => void): Disposable;
}

/** @param now unix milliseconds */
export function systemTokenClock(now: () => number = Date.now): TokenClock {
  return {
    now,
    elapsedMs: () => performance.now(),
    every(intervalMs, action) {
      const timer = setInterval(action, intervalMs).unref();
      return { [Symbol.dispose]: () => clearInterval(timer) };
    },
  };
}

/**
 * A span of time from now on. It is over by whichever clock says so first: a clock that is set back lengthens no token's
 * life, and a host that slept does not either.
 */
export class Lifetime {
  /** Unix milliseconds. */
  readonly endsAtMs: number;
  readonly #clock: TokenClock;
  readonly #endsAtElapsedMs: number;

  constructor(clock: TokenClock, durationMs: number) {
    this.#clock = clock;
    this.endsAtMs = clock.now() + durationMs;
    this.#endsAtElapsedMs = clock.elapsedMs() + durationMs;
  }

  get isOver(): boolean {
    return this.#clock.now() >= this.endsAtMs || this.#clock.elapsedMs() >= this.#endsAtElapsedMs;
  }
}
