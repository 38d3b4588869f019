/**
 * Aborts work like an `AbortController`, but creates the signal on demand: work that is never aborted costs neither a
 * signal nor listeners.
 */
export class AbortSource {
  #controller: AbortController | undefined;
  #follower: { abort(reason: unknown): void } | undefined;
  #isAborted = false;
  #reason: unknown;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  get isAborted(): boolean {
    return this.#isAborted;
  }

  /** The reason; undefined before. */
  get reason(): unknown {
    return this.#reason;
  }

  /**
   * Aborts `follower` with this source, or at once if this source is already aborted. A new follower replaces the
   * previous one.
   */
  follow(follower: { abort(reason: unknown): void }): void {
    this.#follower = follower;
    if (this.#isAborted) follower.abort(this.#reason);
  }

  /** Only the first reason counts. */
  abort(reason: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    this.#controller?.abort(reason);
    this.#follower?.abort(reason);
  }
}

/** Waits for work that cannot be canceled, but not longer than until `signal` aborts. @throws the signal's reason */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
