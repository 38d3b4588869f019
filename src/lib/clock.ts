import { unlessAborted } from "./abort.ts";

/** Time: a wall clock that people and NTP set, and a monotonic clock. */

export interface Clock {
  /** Unix milliseconds. Jumps when the clock is set, and after a suspend. */
  nowMs(): number;
  /** Milliseconds since an arbitrary point; never set, and stops during a suspend. */
  monotonicMs(): number;
  /** Calls `action` once after `delayMs` of the monotonic clock. Disposing the timer cancels the call. */
  setTimer(delayMs: number, action: () => void): Disposable;
}

/** The host's clock. Its timers do not keep the process alive. */
export function systemClock(now: () => number = Date.now): Clock {
  return {
    nowMs: now,
    monotonicMs: () => performance.now(),
    setTimer(delayMs, action) {
      const timer = setTimeout(action, delayMs).unref();
      return { [Symbol.dispose]: () => clearTimeout(timer) };
    },
  };
}

/** Resolves after `delayMs`. @throws the signal's reason as soon as it aborts */
export async function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve } = Promise.withResolvers<undefined>();
  using _timer = clock.setTimer(delayMs, () => resolve(undefined));
  await unlessAborted(promise, signal);
}

/** Calls a function periodically until disposed; calls never overlap. */
export class Ticker implements AsyncDisposable {
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | undefined;

  /** @param work must not throw */
  constructor(intervalMs: number, work: () => Promise<void>) {
    this.#timer = setInterval(() => {
      this.#running ??= work().finally(() => (this.#running = undefined));
    }, intervalMs).unref();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }
}
