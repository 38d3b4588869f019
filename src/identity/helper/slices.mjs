/** Longest stretch of synchronous work, milliseconds: other requests of the same helper get their turn in between. */
const sliceMs = 8;

/** Long synchronous work with pauses. */
export class Slices {
  #signal;
  #end = performance.now() + sliceMs;

  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.#signal = signal;
  }

  get isOver() {
    return performance.now() >= this.#end;
  }

  /** @throws the reason of the signal */
  async rest() {
    this.#signal.throwIfAborted();
    await new Promise((resolve) => setImmediate(resolve));
    this.#signal.throwIfAborted();
    this.#end = performance.now() + sliceMs;
  }
}

/**
 * Runs synchronous steps to their end in short slices. Synchronous calls walk a tree several times faster than
 * promises do, and in slices they neither hold up other requests nor cancellation.
 * @template T
 * @param {Generator<Promise<void> | undefined, T, void>} steps A promise of theirs is waited for before the next one.
 * @param {AbortSignal} signal
 * @param {() => Promise<void> | undefined} [room] To be waited for, where there is something, before the next step.
 * @returns {Promise<T>}
 */
export async function runInSlices(steps, signal, room) {
  const slices = new Slices(signal);
  try {
    signal.throwIfAborted();
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
      if (step.value !== undefined) await step.value;
      const waits = room?.();
      if (waits !== undefined) await waits;
      if (slices.isOver) await slices.rest();
    }
  } finally {
    // Lets the steps close what they hold when they were cut short.
    steps.return(/** @type {T} */ (undefined));
  }
}
