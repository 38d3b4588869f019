/** Caches facts about processes for a limited time. An entry never applies to another process with the same pid. */
import type { ProcessIdentity } from "../../sys/process-identity.ts";

interface Known<T> {
  readonly startTicks: number;
  readonly value: T;
  readonly untilMs: number;
}

/** At this size the cache is cleared, which only costs time. */
const maxKnown = 65_536;

export class ProcessMemo<T> {
  readonly #byPid = new Map<number, Known<T>>();

  /** @param read also returns how long the value is valid, in milliseconds */
  get({ pid, startTicks }: ProcessIdentity, read: () => { value: T; forMs: number }): T {
    const nowMs = performance.now();
    const known = this.#byPid.get(pid);
    if (known?.startTicks === startTicks && nowMs < known.untilMs) return known.value;
    const { value, forMs } = read();
    if (this.#byPid.size >= maxKnown) this.#byPid.clear();
    this.#byPid.set(pid, { startTicks, value, untilMs: nowMs + forMs });
    return value;
  }

  /** Removes all other entries. */
  retain(pids: { has(pid: number): boolean }): void {
    for (const pid of this.#byPid.keys()) if (!pids.has(pid)) this.#byPid.delete(pid);
  }
}
