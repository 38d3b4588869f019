/**
 * Installs and upgrades at a time: each fetches what a user named, and unpacks it (threats 58). So many run for each user
 * and for all; the others wait, users in turn, so that who asks for many waits for their own. Root's have places of their
 * own. Backups that policies want take turns likewise.
 */
import { SvcError } from "../errors.ts";
import { Tally } from "../lib/tally.ts";
import type { AppCaller } from "./app-registry.ts";
import type { WorkOptions } from "./progress.ts";

export interface InstallBounds {
  maxInstallsPerUser: number;
  maxInstalls: number;
  /** Default: as for each user. */
  maxRootInstalls?: number;
  maxWaitingInstallsPerUser: number;
}

type Key = number | "root";

export class InstallTurns {
  readonly #bounds: InstallBounds;
  readonly #running = new Tally<Key>();
  /** Of all regular users. */
  #total = 0;
  /** Those who wait, by user; who had a turn last comes last. */
  readonly #waiting = new Map<Key, (() => void)[]>();

  constructor(bounds: InstallBounds) {
    this.#bounds = bounds;
  }

  /**
   * Resolves when it is the caller's turn, which they have until it is disposed of.
   * @throws SvcError `too_many` when too many of theirs wait already, `canceled`
   */
  async take({ root, uid }: AppCaller, { signal, onProgress }: WorkOptions): Promise<Disposable> {
    const key = root ? "root" : uid;
    if (!this.#waiting.has(key) && this.#hasRoom(key)) this.#enter(key);
    else {
      onProgress?.({ step: "wait", message: this.#explain() });
      await this.#wait(key, signal);
    }
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        if (isOver) return;
        isOver = true;
        this.#leave(key);
      },
    };
  }

  #hasRoom(key: Key): boolean {
    const { maxInstallsPerUser, maxInstalls, maxRootInstalls = maxInstallsPerUser } = this.#bounds;
    const running = this.#running.of(key);
    return key === "root"
      ? running < maxRootInstalls
      : running < maxInstallsPerUser && this.#total < maxInstalls;
  }

  #enter(key: Key): void {
    this.#running.change(key, 1);
    if (key !== "root") this.#total += 1;
  }

  #leave(key: Key): void {
    this.#running.change(key, -1);
    if (key !== "root") this.#total -= 1;
    this.#wakeNext();
  }

  #wakeNext(): void {
    for (const [key, queue] of this.#waiting) {
      if (!this.#hasRoom(key)) continue;
      const wake = queue.shift();
      this.#waiting.delete(key);
      if (queue.length > 0) this.#waiting.set(key, queue);
      if (wake === undefined) continue;
      this.#enter(key);
      wake();
      return;
    }
  }

  async #wait(key: Key, signal: AbortSignal | undefined): Promise<void> {
    const queue = this.#waiting.get(key) ?? [];
    const { maxWaitingInstallsPerUser } = this.#bounds;
    if (queue.length >= maxWaitingInstallsPerUser) {
      throw new SvcError(
        "too_many",
        `${queue.length} of your installs wait already, and [limits] max_waiting_installs_per_user is ${maxWaitingInstallsPerUser}`,
      );
    }
    const turn = Promise.withResolvers<undefined>();
    const wake = (): void => turn.resolve(undefined);
    const cancel = (): void => {
      const at = queue.indexOf(wake);
      // It has its turn already, and ends by itself.
      if (at < 0) return;
      queue.splice(at, 1);
      if (queue.length === 0) this.#waiting.delete(key);
      turn.reject(new SvcError("canceled", "canceled while waiting for other installs"));
    };
    queue.push(wake);
    this.#waiting.set(key, queue);
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    try {
      await turn.promise;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  #explain(): string {
    const { maxInstallsPerUser, maxInstalls } = this.#bounds;
    return `Waiting: at most ${maxInstallsPerUser} installs of a user and ${maxInstalls} of all users run at a time`;
  }
}
