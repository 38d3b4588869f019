/** Longest stretch of synchronous work, milliseconds: other requests of the same helper get their turn in between. */
const sliceMs = 8;

/** Long synchronous work with pauses, for work that also waits for other things; see `runInSlices` for what does not. */
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
