/** Keeps a flow of bytes to a rate, whoever takes part in it: each waits until what went before has had its time. */
import { setTimeout as wait } from "node:timers/promises";

export class BytePacer {
  readonly #bytesPerSec: number;
  readonly #now: () => number;
  #freeAtMs = 0;

  /** @param now milliseconds of a clock that nobody sets */
  constructor(bytesPerSec: number, now: () => number = () => performance.now()) {
    this.#bytesPerSec = bytesPerSec;
    this.#now = now;
  }

  /** Resolves when they may go. @throws the signal's reason */
  async take(bytes: number, signal?: AbortSignal): Promise<void> {
    const nowMs = this.#now();
    const startMs = Math.max(nowMs, this.#freeAtMs);
    this.#freeAtMs = startMs + (bytes / this.#bytesPerSec) * 1000;
    if (startMs > nowMs) await wait(startMs - nowMs, undefined, { signal });
  }
}
