/** Stores the output of a running run: at most once a second, one write at a time. */
import type { Clock } from "../../lib/clock.ts";

const pauseMs = 1_000;

export class OutputWriter implements Disposable {
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

  /** Call when the output has grown. */
  change(): void {
    this.#changes += 1;
    if (this.#timer !== undefined || this.#isWriting || this.#isEnded) return;
    this.#timer = this.#clock.setTimer(pauseMs, () => void this.#store());
  }

  async #store(): Promise<void> {
    this.#timer = undefined;
    this.#isWriting = true;
    const changes = this.#changes;
    try {
      await this.#write();
    } catch {
      // A full disk or a busy store; retried with the next output, or at the end of the run.
    }
    this.#isWriting = false;
    if (this.#changes !== changes) this.change();
  }

  /** Stops; the run's record contains the output. */
  [Symbol.dispose](): void {
    this.#isEnded = true;
    this.#timer?.[Symbol.dispose]();
  }
}
