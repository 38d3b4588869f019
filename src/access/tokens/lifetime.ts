import type { Clock } from "../../lib/clock.ts";

/**
 * A time span that starts now. It ends as soon as either clock, wall or monotonic, has passed it: neither setting the clock back
 * nor suspending the host makes a token last longer.
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
