/**
 * Finds leftover processes of a command by its session and by descent from members of the session. A process that
 * clears its environment is found only while its ancestors live. The others are found by their run ID; see
 * kill-runs.mjs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { readProcessTable } from "../../sys/process-table.mjs";

/** @import { ProcessEntry } from "../../sys/process-table.mjs" */

const maxRounds = 50;
const roundMs = 20;

export class RunFamily {
  #session;
  /** Start times of the processes found so far, by PID: orphans no longer show their ancestors. @type {Map<number, number>} */
  #known = new Map();

  /** @param {number} leader PID of the session's leader */
  constructor(leader) {
    this.#session = leader;
  }

  /** Records the current members. Call it while the leader lives. */
  refresh() {
    const members = this.#members();
    this.#known = new Map(members.map(({ pid, startTicks }) => [pid, startTicks]));
    return members;
  }

  /** Kills the members except the leader, and what they fork in the meantime, until none are left. */
  async kill() {
    for (let round = 0; round < maxRounds; round++) {
      const members = this.refresh();
      if (members.length === 0) return;
      for (const { pid } of members) {
        try {
          process.kill(pid, "SIGKILL");
        } catch {
          // Owned by another user, or exited.
        }
      }
      await sleep(roundMs);
    }
  }

  #members() {
    const family = new Set([this.#session]);
    /** @type {ProcessEntry[]} */
    const members = [];
    let others = readProcessTable().filter(({ pid }) => pid !== this.#session && pid !== process.pid);
    for (let found = 1; found > 0;) {
      const near = others.filter((one) => this.#isRelated(one, family));
      others = others.filter((one) => !near.includes(one));
      for (const one of near) family.add(one.pid);
      members.push(...near);
      found = near.length;
    }
    return members;
  }

  /**
   * @param {ProcessEntry} one
   * @param {ReadonlySet<number>} family
   */
  #isRelated({ pid, ppid, sid, startTicks }, family) {
    return family.has(ppid) || sid === this.#session || this.#known.get(pid) === startTicks;
  }
}
