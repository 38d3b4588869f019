/**
 * Finds what a command left behind by what the kernel knows: who is in its session, and who descends from those. A process
 * that wipes its environment is found so as long as its ancestors live; the rest is found by its cookie, see run-cookie.mjs.
 */
import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const maxRounds = 50;
const roundMs = 20;

/** @typedef {{ pid: number, parent: number, session: number, startTicks: string }} Member */

export class RunFamily {
  #session;
  /** Start times of those who were found, by pid: orphans show no ancestors any more. @type {Map<number, string>} */
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
    /** @type {Member[]} */
    const members = [];
    let others = listProcesses().filter(({ pid }) => pid !== this.#session && pid !== process.pid);
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
   * @param {Member} one
   * @param {ReadonlySet<number>} family
   */
  #isNear({ pid, parent, session, startTicks }, family) {
    return family.has(parent) || session === this.#session || this.#known.get(pid) === startTicks;
  }
}

/** Those that run: who has ended and waits for its parent can do nothing any more. */
function listProcesses() {
  /** @type {Member[]} */
  const processes = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      // Counted after the last `)`, since the name of a program may hold anything (proc_pid_stat(5)).
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      const [state = "", parent, , session] = fields;
      if ("ZX".includes(state)) continue;
      processes.push({ pid, parent: Number(parent), session: Number(session), startTicks: fields[19] ?? "" });
    } catch {
      // It has just ended.
    }
  }
  return processes;
}
