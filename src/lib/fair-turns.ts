/**
 * Lets many share one thread. Work is done as it comes as long as there is little of it. What comes when a turn of the event
 * loop has had enough waits, and from then on each turn does one piece of work, of one after the other of those who wait: so
 * nobody waits for more than a piece of each of the others, and the loop gets to accept, read and write in between.
 */

/** Work of this many milliseconds is enough for a turn of the event loop. */
const fullTurnMs = 2;

type Work = () => void;

export class FairTurns {
  readonly #now: () => number;
  /** By name; who is next comes first. */
  readonly #waiting = new Map<string, Work[]>();
  /** When the first work of this turn of the loop began; undefined when there was none yet. */
  #beganMs: number | undefined;
  #isScheduled = false;

  /** @param now milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Does `work`, which must not throw, now or when it is the turn of `name`. */
  run(name: string, work: Work): void {
    if (this.#isFree()) work();
    else this.#enqueue(name, work);
  }

  /** Undefined when work of `name` may be done now, else a promise that resolves in its turn. */
  wait(name: string): Promise<void> | undefined {
    if (this.#isFree()) return undefined;
    return new Promise((resolve) => this.#enqueue(name, resolve));
  }

  /** How much work of `name` waits. */
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
    return this.#now() - this.#beganMs < fullTurnMs;
  }

  #enqueue(name: string, work: Work): void {
    const queue = this.#waiting.get(name);
    if (queue === undefined) this.#waiting.set(name, [work]);
    else queue.push(work);
  }

  /** At the end of this turn of the loop: what was read in it has come. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
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
