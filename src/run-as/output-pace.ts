import type { Readable } from "node:stream";

/** Bytes of all commands together per interval, and the minimum interval in milliseconds: about 50 MB/s. */
const turnBytes = 1 << 20;
const turnMs = 20;

/** Keeps commands with endless output from blocking the event loop: a command that exceeds the interval's bytes waits. */
export class OutputPace {
  #remainingBytes = turnBytes;
  readonly #waiting = new Set<Readable>();
  #isScheduled = false;

  count(stream: Readable, bytes: number): void {
    this.#remainingBytes -= bytes;
    if (!this.#isScheduled) setTimeout(() => this.#next(), turnMs);
    this.#isScheduled = true;
    if (this.#remainingBytes > 0) return;
    stream.pause();
    this.#waiting.add(stream);
  }

  #next(): void {
    this.#isScheduled = false;
    this.#remainingBytes = turnBytes;
    const streams = [...this.#waiting];
    this.#waiting.clear();
    for (const stream of streams) stream.resume();
  }
}
