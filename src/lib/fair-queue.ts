/**
 * Shares one thread between many users. While there is little work, it runs at once. Once a turn of the event
 * loop has used its time, further work is queued. From then on each turn runs one piece of work, round-robin
 * by user. So a user waits for at most one piece of work of each other user, and the event loop can do I/O in
 * between.
 */

/** Milliseconds of work that are enough for one turn of the event loop. */
const turnBudgetMs = 2;

type Work = () => void;

export class FairQueue {
  readonly #now: () => number;
  /** By user name; the next user comes first. */
  readonly #waiting = new Map<string, Work[]>();
  /** When the first work of this turn of the event loop started; undefined before. */
  #beganMs: number | undefined;
  #isScheduled = false;

  /** @param now milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs `work`, which must not throw, now or when `name` is next. */
  run(name: string, work: Work): void {
    if (this.#isFree()) work();
    else this.#enqueue(name, work);
  }

  /** Returns undefined if work of `name` may run now, else a promise that resolves when `name` is next. */
  wait(name: string): Promise<void> | undefined {
    if (this.#isFree()) return undefined;
    return new Promise((resolve) => this.#enqueue(name, resolve));
  }

  /** The number of waiting pieces of work of `name`. */
  waitingOf(name: string): number {
    return this.#waiting.get(name)?.length ?? 0;
  }

  #isFree(): boolean {
    if (this.#waiting.size > 0) return false;
    if (this.#beganMs === undefined) {
      this.#beganMs = this.#now();
      this.#schedule();
      return true;
    }
    return this.#now() - this.#beganMs < turnBudgetMs;
  }

  #enqueue(name: string, work: Work): void {
    const queue = this.#waiting.get(name);
    if (queue === undefined) this.#waiting.set(name, [work]);
    else queue.push(work);
  }

  /** Runs at the end of this turn of the event loop, when everything read in it has arrived. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#runNext());
  }

  #runNext(): void {
    this.#isScheduled = false;
    this.#beganMs = undefined;
    const [next] = this.#waiting;
    if (next === undefined) return;
    this.#schedule();
    const [name, queue] = next;
    this.#waiting.delete(name);
    const work = queue.shift();
    // Behind all the others.
    if (queue.length > 0) this.#waiting.set(name, queue);
    work?.();
  }
}
