import type { TokenClock } from "../../../src/tokens/token-clock.ts";

/** Time that passes when the test says so. */
export class FakeClock implements TokenClock {
  #wallMs = Date.parse("2026-01-01T00:00:00Z");
  #elapsedMs = 1_000;
  readonly #timers = new Set<{ intervalMs: number; dueMs: number; action: () => void }>();

  now(): number {
    return this.#wallMs;
  }

  elapsedMs(): number {
    return this.#elapsedMs;
  }

  every(intervalMs: number, action: () => void): Disposable {
    const timer = { intervalMs, dueMs: this.#elapsedMs + intervalMs, action };
    this.#timers.add(timer);
    return { [Symbol.dispose]: () => void this.#timers.delete(timer) };
  }

  /** Whether anything wakes up from time to time. */
  get isIdle(): boolean {
    return this.#timers.size === 0;
  }

  /** Lets time pass, timers included. */
  pass(durationMs: number): void {
    this.#wallMs += durationMs;
    this.#elapsedMs += durationMs;
    for (const timer of [...this.#timers]) {
      while (timer.dueMs <= this.#elapsedMs && this.#timers.has(timer)) {
        timer.dueMs += timer.intervalMs;
        timer.action();
      }
    }
  }

  /** Sets the wall clock, as NTP or an operator would. */
  step(byMs: number): void {
    this.#wallMs += byMs;
  }
}
