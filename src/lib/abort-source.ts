/**
 * The end of some work, as an `AbortController` has it, whose signal is made when somebody asks for it: work that nobody
 * ends early pays for neither a signal nor its listeners.
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

  /** Why; undefined before. */
  get reason(): unknown {
    return this.#reason;
  }

  /** Aborts `follower` along with it, at once if that has happened. The last one to follow replaces the one before. */
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
