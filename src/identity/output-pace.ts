import type { Readable } from "node:stream";

/** Bytes of one turn, of all commands together, and how long a turn is at least: some 50 MB/s. */
const turnBytes = 1 << 20;
const turnMs = 20;

/** Keeps commands that print without end from taking all of the event loop: who prints more than a turn has room for waits. */
export class OutputPace {
  #left = turnBytes;
  readonly #waiting = new Set<Readable>();
  #isTurn = false;

  count(stream: Readable, bytes: number): void {
    this.#left -= bytes;
    if (!this.#isTurn) setTimeout(() => this.#next(), turnMs);
    this.#isTurn = true;
    if (this.#left > 0) return;
    stream.pause();
    this.#waiting.add(stream);
  }

  #next(): void {
    this.#isTurn = false;
    this.#left = turnBytes;
    const streams = [...this.#waiting];
    this.#waiting.clear();
    for (const stream of streams) stream.resume();
  }
}
