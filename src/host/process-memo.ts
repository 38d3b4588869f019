/** What was read of processes, for as long as it is to be believed; never of another one that got the pid. */
import type { ProcessIdentity } from "../lib/process-identity.ts";

interface Known<T> {
  readonly startTicks: number;
  readonly value: T;
  readonly untilMs: number;
}

/** Then all are forgotten: that costs time, nothing else. */
const maxKnown = 65_536;

export class ProcessMemo<T> {
  readonly #byPid = new Map<number, Known<T>>();

  /** @param read for how long it is to be believed, too, in milliseconds */
  get({ pid, startTicks }: ProcessIdentity, read: () => { value: T; forMs: number }): T {
    const nowMs = performance.now();
    const known = this.#byPid.get(pid);
    if (known?.startTicks === startTicks && nowMs < known.untilMs) return known.value;
    const { value, forMs } = read();
    if (this.#byPid.size >= maxKnown) this.#byPid.clear();
    this.#byPid.set(pid, { startTicks, value, untilMs: nowMs + forMs });
    return value;
  }

  /** Forgets all others. */
  keep(pids: { has(pid: number): boolean }): void {
    for (const pid of this.#byPid.keys()) if (!pids.has(pid)) this.#byPid.delete(pid);
  }
}
