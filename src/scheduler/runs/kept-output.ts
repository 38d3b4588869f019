/** When the output of a run that goes is put on disk: at most once a second, and only one write of it at a time. */
import type { Clock } from "../../lib/clock.ts";

const pauseMs = 1_000;

export class KeptOutput implements Disposable {
  readonly #clock: Clock;
  readonly #write: () => Promise<void>;
  #timer: Disposable | undefined;
  #isWriting = false;
  #changes = 0;
  #isEnded = false;

  constructor(clock: Clock, write: () => Promise<void>) {
    this.#clock = clock;
    this.#write = write;
  }

  /** There is more of it. */
  change(): void {
    this.#changes += 1;
    if (this.#timer !== undefined || this.#isWriting || this.#isEnded) return;
    this.#timer = this.#clock.setTimer(pauseMs, () => void this.#keep());
  }

  async #keep(): Promise<void> {
    this.#timer = undefined;
    this.#isWriting = true;
    const changes = this.#changes;
    try {
      await this.#write();
    } catch {
      // A full disk or a busy store: the next piece, or the end of the run, tries again.
    }
    this.#isWriting = false;
    if (this.#changes !== changes) this.change();
  }

  /** The run's record takes over. */
  [Symbol.dispose](): void {
    this.#isEnded = true;
    this.#timer?.[Symbol.dispose]();
  }
}
