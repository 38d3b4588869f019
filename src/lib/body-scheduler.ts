/**
 * Schedules the reading of one user's request bodies: small ones at once, large ones one at a time; parsing
 * is round-robin by user.
 */
import type { FairQueue } from "./fair-queue.ts";

/** Bytes of a body that are read at once, whatever else its user sends. */
export const smallBodyBytes = 64 * 1024;

export class BodyScheduler {
  readonly #fairQueue: FairQueue;
  /** By user name: bodies that wait while a large body of the user is read. */
  readonly #queues = new Map<string, (() => void)[]>();

  constructor(fairQueue: FairQueue) {
    this.#fairQueue = fairQueue;
  }

  open(name: string): ScheduledBody {
    return new ScheduledBody(name, this.#fairQueue, this.#queues);
  }
}

/** The schedule of one body. */
export class ScheduledBody implements Disposable {
  readonly #name: string;
  readonly #fairQueue: FairQueue;
  readonly #queues: Map<string, (() => void)[]>;
  #state: "small" | "waiting" | "large" | "done" = "small";

  constructor(name: string, fairQueue: FairQueue, queues: Map<string, (() => void)[]>) {
    this.#name = name;
    this.#fairQueue = fairQueue;
    this.#queues = queues;
  }

  /**
   * Call this when there is more than {@link smallBodyBytes}. Returns undefined if reading may continue, else a promise
   * for when it may.
   */
  large(): Promise<void> | undefined {
    if (this.#state !== "small") return undefined;
    const waiting = this.#queues.get(this.#name);
    if (waiting === undefined) {
      this.#queues.set(this.#name, []);
      this.#state = "large";
      return undefined;
    }
    this.#state = "waiting";
    return new Promise((resolve) => {
      waiting.push(() => {
        resolve();
        if (this.#state === "done") this.#next();
        else this.#state = "large";
      });
    });
  }

  /** Call this when the body is complete. Returns undefined if it may be parsed now, else a promise for when it may. */
  complete(): Promise<void> | undefined {
    return this.#fairQueue.wait(this.#name);
  }

  /** Call this when the body is parsed or no longer needed. */
  [Symbol.dispose](): void {
    const wasLarge = this.#state === "large";
    this.#state = "done";
    if (wasLarge) this.#next();
  }

  #next(): void {
    const waiting = this.#queues.get(this.#name);
    const next = waiting?.shift();
    if (next === undefined) this.#queues.delete(this.#name);
    else next();
  }
}
