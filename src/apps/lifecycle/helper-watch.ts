/** Detects that a user helper does not respond. Its user can stop it, and other users must not wait for it. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { unlessAborted } from "../../lib/abort.ts";

/** A working helper answers a small request within this time, even if it has to be started. */
const silentMs = 1_500;
const intervalMs = 500;

export class HelperWatch implements Disposable {
  readonly #userHelper: UserHelper;
  readonly #silent = new AbortController();
  readonly #over = new AbortController();

  constructor(userHelper: UserHelper) {
    this.#userHelper = userHelper;
    void this.#watch();
  }

  /**
   * Runs work of the helper while the helper responds.
   * @throws errors of the work; SvcError `unavailable` if the helper stops responding, after canceling the work
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
      const question = this.#userHelper.stat("/", ".", { signal });
      // The work meets the same problem and reports it.
      const answer = question.then(
        () => true,
        () => true,
      );
      const hasAnswered = await Promise.race([answer, sleep(silentMs, false, { signal, ref: false })]).catch(
        () => true,
      );
      if (!hasAnswered) {
        this.#silent.abort(silence(this.#userHelper.user.name));
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
  return new SvcError("unavailable", `the helper process of user "${userName}" does not respond`);
}
