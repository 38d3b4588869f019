/** One piece of work at a time for each key, in the order of asking. */
import { SvcError } from "../errors.ts";

export class KeyedQueue {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Runs `work` when all earlier work of `key` has ended. @throws SvcError `canceled` when `signal` fires while waiting. */
  async run<T>(key: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const { promise: mine, resolve: done } = Promise.withResolvers<undefined>();
    const last = before.then(() => mine);
    this.#last.set(key, last);
    try {
      await waitFor(before, signal);
      return await work();
    } finally {
      done(undefined);
      if (this.#last.get(key) === last) this.#last.delete(key);
    }
  }
}

async function waitFor(before: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) {
    await before;
    return;
  }
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const cancel = (): void => reject(new SvcError("canceled", "canceled while waiting for a fetch"));
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    await Promise.race([before, aborted]);
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}
