/** Runs long work in slices, so that the event loop can handle other events in between. */
export interface SlicedWorkOptions {
  /** Duration of a slice. */
  budgetMs: number;
  /** Milliseconds since an arbitrary point, never set back. */
  monotonicMs: () => number;
  /** Receives errors of work; the rest of that work is dropped. */
  onError: (error: unknown) => void;
}

/** Work that can pause wherever it yields. */
export type YieldingWork = Iterator<undefined, void>;

/** Runs one piece of work after the other: the first slice at once, each further slice in a later turn of the event loop. */
export class SlicedWork implements Disposable {
  readonly #options: SlicedWorkOptions;
  readonly #queue: YieldingWork[] = [];
  #next: NodeJS.Immediate | undefined;
  #isRunning = false;

  constructor(options: SlicedWorkOptions) {
    this.#options = options;
  }

  /** The number of unfinished pieces of work. */
  get size(): number {
    return this.#queue.length;
  }

  get isBusy(): boolean {
    return this.size > 0;
  }

  /** The caller limits how much it adds. */
  add(work: YieldingWork): void {
    this.#queue.push(work);
    if (!this.#isRunning && this.#next === undefined) this.#slice();
  }

  #slice(): void {
    const { budgetMs, monotonicMs } = this.#options;
    const endMs = monotonicMs() + budgetMs;
    this.#next = undefined;
    this.#isRunning = true;
    for (let work = this.#queue[0]; work !== undefined; work = this.#queue[0]) {
      if (this.#step(work)) this.#queue.shift();
      if (monotonicMs() < endMs) continue;
      if (this.isBusy) this.#next = setImmediate(() => this.#slice());
      break;
    }
    this.#isRunning = false;
  }

  /** Runs one step. @returns whether the work is done */
  #step(work: YieldingWork): boolean {
    try {
      return work.next().done === true;
    } catch (error) {
      this.#options.onError(error);
      return true;
    }
  }

  /** Drops unfinished work. */
  [Symbol.dispose](): void {
    clearImmediate(this.#next);
    this.#queue.length = 0;
  }
}
