/** Notices that a user's helper does not answer any more: it is theirs to stop, and nobody else is to wait for it. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";

/** One that is asked something small has answered by then, the start of a new one included. */
const silentMs = 1_500;
const intervalMs = 500;

export class HelperWatch implements Disposable {
  readonly #identity: Identity;
  readonly #silent = new AbortController();
  readonly #over = new AbortController();

  constructor(identity: Identity) {
    this.#identity = identity;
    void this.#watch();
  }

  /**
   * Does work of that helper, as long as it answers at all.
   * @throws what the work throws; SvcError `unavailable` when the helper falls silent, while the work is being cancelled
   */
  during<T>(work: (signal: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const silent = this.#silent.signal;
    const both = signal ? AbortSignal.any([signal, silent]) : silent;
    if (both.aborted) return Promise.reject(both.reason as Error);
    return unlessAborted(work(both), both);
  }

  async #watch(): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      const question = this.#identity.stat("/", ".", { signal });
      // What keeps it from answering meets the work as well, which tells it.
      const answer = question.then(
        () => true,
        () => true,
      );
      const hasAnswered = await Promise.race([answer, sleep(silentMs, false, { signal, ref: false })]).catch(
        () => true,
      );
      if (!hasAnswered) {
        this.#silent.abort(silence(this.#identity.user.name));
        return;
      }
      await sleep(intervalMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  [Symbol.dispose](): void {
    this.#over.abort();
  }
}

function silence(userName: string): SvcError<"unavailable"> {
  return new SvcError("unavailable", `the helper process of user "${userName}" does not answer`);
}
