/** Longest stretch of synchronous work in milliseconds, so that other requests of the helper can run in between. */
const sliceMs = 8;

/** Pauses long synchronous work. */
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
  async nextSlice() {
    this.#signal.throwIfAborted();
    await new Promise((resolve) => setImmediate(resolve));
    this.#signal.throwIfAborted();
    this.#end = performance.now() + sliceMs;
  }
}

/**
 * Runs synchronous steps in short slices until they are done. Synchronous calls walk a tree several times faster than
 * promises. In slices they block neither other requests nor cancellation.
 * @template T
 * @param {Generator<Promise<void> | undefined, T, void>} steps a yielded promise is awaited before the next step
 * @param {AbortSignal} signal
 * @param {() => Promise<void> | undefined} [room] a returned promise is awaited before the next step
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
      if (slices.isOver) await slices.nextSlice();
    }
  } finally {
    // Lets interrupted steps close what they have open.
    steps.return(/** @type {T} */ (undefined));
  }
}
