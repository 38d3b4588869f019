/**
 * Finds what a command left behind by what the kernel knows: who is in its session, and who descends from those. A process
 * that wipes its environment is found so as long as its ancestors live; the rest is found by its cookie, see kill-runs.mjs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { readProcessTable } from "../../lib/process-table.mjs";

/** @import { ProcessEntry } from "../../lib/process-table.mjs" */

const maxRounds = 50;
const roundMs = 20;

export class RunFamily {
  #session;
  /** Start times of those who were found, by pid: orphans show no ancestors any more. @type {Map<number, number>} */
  #known = new Map();

  /** @param {number} leader Pid of the leader of the session. */
  constructor(leader) {
    this.#session = leader;
  }

  /** Remembers who belongs to it now: to be called while the leader lives. */
  look() {
    const members = this.#members();
    this.#known = new Map(members.map(({ pid, startTicks }) => [pid, startTicks]));
    return members;
  }

  /** Kills its members but the leader, and what they fork meanwhile, until none is left. */
  async kill() {
    for (let round = 0; round < maxRounds; round++) {
      const members = this.look();
      if (members.length === 0) return;
      for (const { pid } of members) {
        try {
          process.kill(pid, "SIGKILL");
        } catch {
          // Another user's, or gone.
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
      const near = others.filter((one) => this.#isNear(one, family));
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
  #isNear({ pid, ppid, sid, startTicks }, family) {
    return family.has(ppid) || sid === this.#session || this.#known.get(pid) === startTicks;
  }
}
