/** Time: a wall clock that people and NTP set, and a timer that knows nothing of that. */
import { unlessAborted } from "./unless-aborted.ts";

export interface Clock {
  /** Unix milliseconds; goes back and jumps ahead when the clock is set, and jumps ahead after a suspend. */
  nowMs(): number;
  /** Milliseconds since some point, never set; stands still in a suspend. */
  monotonicMs(): number;
  /** Calls `action` once after `delayMs`, measured by the monotonic clock. Disposing it in time prevents that. */
  setTimer(delayMs: number, action: () => void): Disposable;
}

/** The host's. Its timers keep no process alive: what they belong to does. */
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
