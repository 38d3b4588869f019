/** The live output of a run for any number of readers, which never delay the run. */

/** Buffer limit per reader; further output is dropped for that reader. */
const maxWaitingBytes = 1 << 20;

export class LiveOutput {
  readonly #readers = new Set<Reader>();
  #isEnded = false;

  push(bytes: Uint8Array): void {
    for (const reader of this.#readers) reader.push(bytes);
  }

  end(): void {
    this.#isEnded = true;
    for (const reader of this.#readers) reader.end();
    this.#readers.clear();
  }

  /** Yields the output from now on until the end or until `signal` aborts. Can be iterated once. */
  follow(signal: AbortSignal): AsyncIterable<Uint8Array> {
    if (this.#isEnded || signal.aborted) return nothing;
    const reader = new Reader();
    const leave = (): void => {
      this.#readers.delete(reader);
      signal.removeEventListener("abort", leave);
      reader.end();
    };
    this.#readers.add(reader);
    signal.addEventListener("abort", leave);
    return {
      async *[Symbol.asyncIterator]() {
        try {
          for (;;) {
            const bytes = await reader.next();
            if (bytes === undefined) return;
            yield bytes;
          }
        } finally {
          leave();
        }
      },
    };
  }
}

/** An empty stream. */
export const nothing: AsyncIterable<Uint8Array> = {
  [Symbol.asyncIterator]: () => ({ next: () => Promise.resolve({ done: true, value: undefined }) }),
};

class Reader {
  readonly #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #isEnded = false;
  #wake: (() => void) | undefined;

  push(bytes: Uint8Array): void {
    if (this.#isEnded || this.#waitingBytes + bytes.length > maxWaitingBytes) return;
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    this.#wake?.();
  }

  end(): void {
    this.#isEnded = true;
    this.#wake?.();
  }

  /** The next piece; undefined after the last. */
  async next(): Promise<Uint8Array | undefined> {
    while (this.#waiting.length === 0 && !this.#isEnded) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const bytes = this.#waiting.shift();
    this.#waitingBytes -= bytes?.length ?? 0;
    return bytes;
  }
}
