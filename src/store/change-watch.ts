/**
 * Detects commits: those of this process when they are acknowledged, those of other processes by polling `PRAGMA
 * data_version`.
 */

/** How soon commits of other processes are noticed. */
const pollMs = 250;

export interface ChangeWatchOptions {
  /** A number that changes when another connection commits. */
  dataVersion: () => unknown;
  /** Receives errors of listeners and of polls. */
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

  /** Calls `listener` after each commit, or once for several. Polls only while there are listeners. */
  listen(listener: () => void): Disposable {
    // A new wrapper each time, so that the same function can be registered twice.
    const entry = (): void => listener();
    if (this.#listeners.size === 0) this.#seen = this.#options.dataVersion();
    this.#listeners.add(entry);
    this.#timer ??= setInterval(() => this.notify(), pollMs).unref();
    return {
      [Symbol.dispose]: () => {
        this.#listeners.delete(entry);
        if (this.#listeners.size === 0) this[Symbol.dispose]();
      },
    };
  }

  /**
   * Notifies the listeners if something was committed since the last time. A poll can notice a commit of this process
   * before its writer reports it.
   */
  notify(): void {
    if (this.#listeners.size === 0) return;
    this.#guard(() => {
      const version = this.#options.dataVersion();
      if (version === this.#seen) return;
      this.#seen = version;
      for (const listener of [...this.#listeners]) this.#guard(listener);
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
