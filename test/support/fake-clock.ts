import type { Clock } from "../../src/lib/clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly action: () => void;
}

/** Time that passes only when the test advances it. */
export class FakeClock implements Clock {
  #nowMs: number;
  #monotonicMs = 1_000;
  /** By due time. */
  readonly #timers: Timer[] = [];

  /** @param start such as `2026-01-01T00:00:00Z` */
  constructor(start = "2026-01-01T00:00:00Z") {
    this.#nowMs = Date.parse(start);
  }

  nowMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  setTimer(delayMs: number, action: () => void): Disposable {
    const timer = { dueMs: this.#monotonicMs + delayMs, action };
    const after = this.#timers.findIndex(({ dueMs }) => dueMs > timer.dueMs);
    this.#timers.splice(after === -1 ? this.#timers.length : after, 0, timer);
    return {
      [Symbol.dispose]: () => {
        const at = this.#timers.indexOf(timer);
        if (at !== -1) this.#timers.splice(at, 1);
      },
    };
  }

  /** Whether no timer is pending. */
  get isIdle(): boolean {
    return this.#timers.length === 0;
  }

  /** Advances time: each timer sees the time at which it is due. */
  pass(durationMs: number): void {
    const endMs = this.#monotonicMs + durationMs;
    for (let timer = this.#timers[0]; timer !== undefined && timer.dueMs <= endMs; timer = this.#timers[0]) {
      this.#timers.shift();
      this.#moveTo(Math.max(timer.dueMs, this.#monotonicMs));
      timer.action();
    }
    this.#moveTo(endMs);
  }

  /** Sets the wall clock, as NTP or an operator would; a resumed host sees the same. */
  step(byMs: number): void {
    this.#nowMs += byMs;
  }

  #moveTo(monotonicMs: number): void {
    this.#nowMs += monotonicMs - this.#monotonicMs;
    this.#monotonicMs = monotonicMs;
  }
}
