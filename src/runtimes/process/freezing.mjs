/**
 * Freezes and resumes all processes of a run: by its cgroup (v2) if it has one, else by stopping each process.
 * Repeated passes find processes that were forked meanwhile.
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readProcess } from "../../sys/process-table.mjs";
import { allMembers, cgroupPids, freezeCgroup, sendSignal } from "./ending.mjs";

/** @import { ProcessEntry } from "../../sys/process-table.mjs" */
/** @import { Run } from "./run-members.mjs" */

/** Long, because a process that waits for a busy disk stops only after the disk responds. */
const freezeMs = 40_000;
const pollMs = 5;
/** A process that is forked during one pass is found by the next. */
const stillRounds = 2;

export class Freezer {
  #run;
  #cgroup;
  /**
   * Processes that were stopped here, by PID: others that were already stopped stay stopped. @type {Map<number,
   * ProcessEntry>}
   */
  #stopped = new Map();
  /** Set while the processes are frozen. @type {PromiseWithResolvers<void> | undefined} */
  #thawed;

  /**
   * @param {Run} run
   * @param {string | null} cgroup the app's cgroup v2
   */
  constructor(run, cgroup) {
    this.#run = run;
    this.#cgroup = cgroup;
  }

  /** Resolves when nothing is frozen. */
  get thawed() {
    return this.#thawed?.promise ?? Promise.resolve();
  }

  /** Resolves when no process executes any more. @throws Error when one cannot be frozen; then all are resumed */
  async freeze() {
    const own = Promise.withResolvers();
    this.#thawed = own;
    try {
      const deadline = process.uptime() * 1000 + freezeMs;
      const byCgroup = this.#cgroup !== null && freezeCgroup(this.#cgroup, true);
      for (let still = 0; still < stillRounds;) {
        const moving = this.#round(byCgroup);
        still = moving === undefined ? still + 1 : 0;
        if (process.uptime() * 1000 > deadline && moving !== undefined) {
          throw new Error(`not all of its processes could be frozen: ${moving}`);
        }
        await sleep(pollMs);
        if (this.#thawed !== own) throw new Error("the app was resumed before all of it was frozen");
      }
    } catch (error) {
      if (this.#thawed === own) this.thaw();
      throw error;
    }
  }

  thaw() {
    if (this.#thawed === undefined) return;
    if (this.#cgroup !== null) freezeCgroup(this.#cgroup, false);
    for (const entry of this.#stopped.values()) sendSignal(entry, "SIGCONT");
    this.#stopped.clear();
    this.#thawed.resolve();
    this.#thawed = undefined;
  }

  /**
   * Stops the processes that still execute.
   * @param {boolean} byCgroup
   * @returns {string | undefined} describes one of them
   */
  #round(byCgroup) {
    const cared = new Set(byCgroup && this.#cgroup !== null ? cgroupPids(this.#cgroup) : []);
    let moving = !byCgroup || this.#cgroup === null || isFrozen(this.#cgroup) ? undefined : "the cgroup";
    const members = allMembers(this.#run, this.#cgroup);
    for (const entry of members) {
      const states = cared.has(entry.pid) ? [] : readStates(entry.pid);
      if (states.every(isStopped)) continue;
      const wasStopped = this.#stopped.get(entry.pid)?.startTicks === entry.startTicks;
      if (!wasStopped) {
        this.#stopped.set(entry.pid, entry);
        sendSignal(entry, "SIGSTOP");
      }
      // vfork(2) suspends the parent until its child executes a program, which a frozen child does not.
      const isHeld = members.some(({ pid, ppid }) => ppid === entry.pid && stands(readStates(pid)));
      if (wasStopped && isHeld && states.every((state) => state === "D" || isStopped(state))) continue;
      moving = `process ${entry.pid} is in state ${states.join("")}`;
    }
    return moving;
  }
}

/** @param {string} cgroup */
function isFrozen(cgroup) {
  try {
    return /^frozen 1$/m.test(readFileSync(join(cgroup, "cgroup.events"), "latin1"));
  } catch {
    return false;
  }
}

/** @param {string[]} states of a process; none when it has ended */
function stands(states) {
  return states.length > 0 && states.every(isStopped);
}

/** @param {string} state */
function isStopped(state) {
  return ["T", "t", "Z", "X"].includes(state);
}

/**
 * The states of a process's threads; empty once it has ended.
 * @param {number} pid
 */
function readStates(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`).map((tid) => {
      const stat = readFileSync(`/proc/${pid}/task/${tid}/stat`, "latin1");
      return stat.charAt(stat.lastIndexOf(")") + 2);
    });
  } catch {
    // A thread that ended at this moment was executing.
    return readProcess(pid) === undefined ? [] : ["R"];
  }
}
