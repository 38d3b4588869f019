/** Runs one piece of work at a time for each key, in order of the calls. */
import { unlessAborted } from "./abort.ts";

export class KeyedQueue {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Runs `work` when all earlier work of `key` has ended. @throws the signal's reason if it aborts while waiting */
  async run<T>(key: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const { promise: mine, resolve: done } = Promise.withResolvers<undefined>();
    const last = before.then(() => mine);
    this.#last.set(key, last);
    try {
      await (signal === undefined ? before : unlessAborted(before, signal));
      return await work();
    } finally {
      done(undefined);
      if (this.#last.get(key) === last) this.#last.delete(key);
    }
  }
}
