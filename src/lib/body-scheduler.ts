/**
 * Schedules the reading of one user's request bodies: small ones at once, large ones one at a time; parsing
 * is round-robin by user.
 */
import type { FairQueue } from "./fair-queue.ts";
import { oneAtATime, type Limiter } from "./limiter.ts";

/** Bytes of a body that are read at once, whatever else its user sends. */
export const smallBodyBytes = 64 * 1024;

export class BodyScheduler {
  readonly #fairQueue: FairQueue;
  /** Large bodies, by user name. */
  readonly #large = oneAtATime<string>();

  constructor(fairQueue: FairQueue) {
    this.#fairQueue = fairQueue;
  }

  open(name: string): ScheduledBody {
    return new ScheduledBody(name, this.#fairQueue, this.#large);
  }
}

/** The schedule of one body. */
export class ScheduledBody implements Disposable {
  readonly #name: string;
  readonly #fairQueue: FairQueue;
  readonly #large: Limiter<string>;
  #isLarge = false;
  #isDone = false;
  #slot: Disposable | undefined;

  constructor(name: string, fairQueue: FairQueue, beginLarge: Limiter<string>) {
    this.#name = name;
    this.#fairQueue = fairQueue;
    this.#large = beginLarge;
  }

  /**
   * Call this when there is more than {@link smallBodyBytes}. Returns undefined if reading may continue, else a promise
   * for when it may.
   */
  beginLarge(): Promise<void> | undefined {
    if (this.#isLarge) return undefined;
    this.#isLarge = true;
    this.#slot = this.#large.tryAcquire(this.#name);
    return this.#slot === undefined ? this.#waitForSlot() : undefined;
  }

  /** Call this when the body is complete. Returns undefined if it may be parsed now, else a promise for when it may. */
  complete(): Promise<void> | undefined {
    return this.#fairQueue.wait(this.#name);
  }

  async #waitForSlot(): Promise<void> {
    const slot = await this.#large.acquire(this.#name);
    if (this.#isDone) slot[Symbol.dispose]();
    else this.#slot = slot;
  }

  /** Call this when the body is parsed or no longer needed. */
  [Symbol.dispose](): void {
    this.#isDone = true;
    this.#slot?.[Symbol.dispose]();
  }
}
