/** Watches the output of a program on its way to the consumer. Also used by programs that svc starts as separate processes. */
import { setTimeout as sleep } from "node:timers/promises";

/** More than any pipe holds: further output comes from a process that could not be killed. */
const mostLeftBytes = 4 << 20;
/**
 * A pipe's remaining content arrives without pauses, except on a busy host. After this many pauses, the output comes
 * from a living process.
 */
const mostPauses = 5;

/** Distinguishes output that nobody writes any more from output that is consumed slowly. */
export class OutputFlow {
  #taking = 0;
  #takenAt = -Infinity;
  #takenBytes = 0;

  /**
   * @param {(chunk: Buffer) => void | Promise<void>} take
   * @returns {(chunk: Buffer) => Promise<void>}
   */
  watched(take) {
    return async (chunk) => {
      this.#taking += 1;
      try {
        await take(chunk);
      } finally {
        this.#taking -= 1;
        this.#takenAt = performance.now();
        this.#takenBytes += chunk.length;
      }
    };
  }

  /**
   * Resolves when no output has arrived for a while although the consumer was ready, or when a living process keeps
   * printing.
   * @param {number} quietMs
   */
  async ranDry(quietMs) {
    const before = this.#takenBytes;
    for (let pauses = 0; pauses < mostPauses && this.#takenBytes - before < mostLeftBytes;) {
      await sleep(quietMs, undefined, { ref: false });
      if (this.#taking > 0) continue;
      if (performance.now() - this.#takenAt >= quietMs) return;
      pauses += 1;
    }
  }
}
