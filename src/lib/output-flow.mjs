/** What a program prints, on its way to who takes it; also for programs that svc starts on their own. */
import { setTimeout as sleep } from "node:timers/promises";

/** No pipe holds as much: what comes beyond it is printed by somebody who cannot be ended. */
const mostLeftBytes = 4 << 20;
/** What a pipe held comes without pauses but for those of a busy machine: what comes after more of them is printed by somebody, too. */
const mostPauses = 5;

/** Tells output that nobody writes any more from output that is taken slowly. */
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
   * Resolves when nothing has come for a while, though more would have been taken, or when it is somebody who prints on.
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
