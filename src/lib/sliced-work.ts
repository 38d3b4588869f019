/** Long work in slices, so that the event loop gets to everything else in between. */
export interface SlicedWorkOptions {
  /** How long a slice may take. */
  budgetMs: number;
  /** Milliseconds since some point, never set back. */
  monotonicMs: () => number;
  /** Hears what work threw; the rest of that work is dropped. */
  onError: (error: unknown) => void;
}

/** Work that gives way wherever it yields. */
export type YieldingWork = Iterator<undefined, void>;

/** Does one piece of work after the other: the first slice at once, the others when the event loop comes round. */
export class SlicedWork implements Disposable {
  readonly #options: SlicedWorkOptions;
  readonly #queue: YieldingWork[] = [];
  #next: NodeJS.Immediate | undefined;
  #isRunning = false;

  constructor(options: SlicedWorkOptions) {
    this.#options = options;
  }

  /** How many pieces of work are not done yet. */
  get size(): number {
    return this.#queue.length;
  }

  get isBusy(): boolean {
    return this.size > 0;
  }

  /** The caller bounds how much it adds. */
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

  /** Whether the work is done. */
  #step(work: YieldingWork): boolean {
    try {
      return work.next().done === true;
    } catch (error) {
      this.#options.onError(error);
      return true;
    }
  }

  /** Drops what is not done yet. */
  [Symbol.dispose](): void {
    clearImmediate(this.#next);
    this.#queue.length = 0;
  }
}
