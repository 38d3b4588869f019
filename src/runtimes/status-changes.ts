/** Waits until an app reaches a state. */
import { SvcError } from "../errors.ts";

export class StatusChanges {
  readonly #appId: string;
  readonly #waiting = new Set<() => void>();

  constructor(appId: string) {
    this.#appId = appId;
  }

  /** Makes waiting calls check again. */
  announce(): void {
    for (const wake of this.#waiting) wake();
  }

  /**
   * Resolves when `isSo`, which is checked now and at each change, is true; its errors are thrown.
   * @throws SvcError `deadline_exceeded`, `canceled`
   */
  async until(isSo: () => boolean, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const deadline = AbortSignal.timeout(timeoutMs);
    const either = signal ? AbortSignal.any([signal, deadline]) : deadline;
    while (!isSo()) {
      if (signal?.aborted === true) {
        throw new SvcError("canceled", `waiting for app "${this.#appId}" was canceled`);
      }
      if (deadline.aborted) {
        const message = `app "${this.#appId}" took longer than ${timeoutMs} ms`;
        throw new SvcError("deadline_exceeded", message);
      }
      const change = Promise.withResolvers<undefined>();
      const wake = (): void => change.resolve(undefined);
      this.#waiting.add(wake);
      either.addEventListener("abort", wake, { once: true });
      await change.promise;
      this.#waiting.delete(wake);
      either.removeEventListener("abort", wake);
    }
  }
}

/** For an app that was neither started nor reattached: there is nothing to wait for. */
export function appNotRunning(id: string): SvcError<"app_not_running"> {
  return new SvcError("app_not_running", `app "${id}" does not run`);
}
