import type { Clock } from "../lib/clock.ts";

/**
 * A span of time from now on. It is over by whichever clock says so first: a clock that is set back lengthens no token's
 * life, and a host that slept does not either.
 */
export class Lifetime {
  /** Unix milliseconds. */
  readonly endsAtMs: number;
  readonly #clock: Clock;
  readonly #endsAtMonotonicMs: number;

  constructor(clock: Clock, durationMs: number) {
    this.#clock = clock;
    this.endsAtMs = clock.nowMs() + durationMs;
    this.#endsAtMonotonicMs = clock.monotonicMs() + durationMs;
  }

  get isOver(): boolean {
    return this.#clock.nowMs() >= this.endsAtMs || this.#clock.monotonicMs() >= this.#endsAtMonotonicMs;
  }
}
