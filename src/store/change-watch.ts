/** Notices commits: this process's as they are acknowledged, other processes' by polling `PRAGMA data_version`. */
export interface ChangeWatchOptions {
  /** A number that differs after another connection committed. */
  dataVersion: () => unknown;
  /** How often to look, in milliseconds. */
  pollMs: number;
  /** Hears what a listener or a look at the version threw. */
  onError: (error: unknown) => void;
}

export class ChangeWatch implements Disposable {
  readonly #options: ChangeWatchOptions;
  readonly #listeners = new Set<() => void>();
  #seen: unknown;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ChangeWatchOptions) {
    this.#options = options;
  }

  /** Calls `listener` after each commit, or once for several; polls only while somebody listens. */
  listen(listener: () => void): Disposable {
    // A wrapper of its own, so that the same function may listen twice.
    const entry = (): void => listener();
    if (this.#listeners.size === 0) this.#seen = this.#options.dataVersion();
    this.#listeners.add(entry);
    this.#timer ??= setInterval(() => this.#poll(), this.#options.pollMs).unref();
    return {
      [Symbol.dispose]: () => {
        this.#listeners.delete(entry);
        if (this.#listeners.size === 0) this[Symbol.dispose]();
      },
    };
  }

  /** Tells the listeners of a commit of this process. */
  notify(): void {
    if (this.#listeners.size === 0) return;
    this.#guard(() => (this.#seen = this.#options.dataVersion()));
    for (const listener of [...this.#listeners]) this.#guard(listener);
  }

  #poll(): void {
    this.#guard(() => {
      if (this.#options.dataVersion() !== this.#seen) this.notify();
    });
  }

  #guard(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#options.onError(error);
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#listeners.clear();
  }
}
