/**
 * Ends every process of a run: a stop signal, a grace period, then SIGKILL, repeated until no process is left, which
 * includes double-forked and newly forked ones.
 */
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readProcess } from "../../sys/process-table.mjs";
import { findMembers } from "./run-members.mjs";

/** @import { ProcessEntry } from "../../sys/process-table.mjs" */
/** @import { Run } from "./run-members.mjs" */

/**
 * @typedef {object} EndOptions
 * @property {NodeJS.Signals} signal
 * @property {number} graceMs from the signal to SIGKILL
 * @property {number} [forceMs] how long to repeat SIGKILL; a process in uninterruptible sleep cannot be killed
 * @property {string | null} [cgroup] the app's cgroup v2, whose members also belong to the run
 */

const pollMs = 50;
const forcePollMs = 10;

/**
 * @param {Run} run
 * @param {EndOptions} options
 * @returns {Promise<number>} number of remaining processes, which cannot be killed
 */
export async function endProcesses(run, { signal, graceMs, forceMs = 10_000, cgroup = null }) {
  const members = () => allMembers(run, cgroup);
  // A frozen process handles no signal but SIGKILL.
  if (cgroup !== null) freezeCgroup(cgroup, false);

  let remaining = members();
  if (remaining.length === 0) return 0;
  if (signal !== "SIGKILL") {
    for (const entry of remaining) {
      sendSignal(entry, signal);
      // A stopped process would not handle the signal.
      sendSignal(entry, "SIGCONT");
    }
    const deadline = process.uptime() * 1000 + graceMs;
    while (remaining.length > 0 && process.uptime() * 1000 < deadline) {
      await sleep(Math.min(pollMs, Math.max(1, deadline - process.uptime() * 1000)));
      // Scanning all processes takes milliseconds, and is needed only after the last known one has ended.
      if (!remaining.some(isThere)) remaining = members();
    }
    if (remaining.length > 0) remaining = members();
  }
  const deadline = process.uptime() * 1000 + forceMs;
  while (remaining.length > 0 && process.uptime() * 1000 < deadline) {
    if (cgroup !== null) killCgroup(cgroup);
    for (const entry of remaining) sendSignal(entry, "SIGKILL");
    await sleep(forcePollMs);
    remaining = members();
  }
  return remaining.length;
}

/**
 * @param {Run} run
 * @param {string | null} cgroup
 */
export function allMembers(run, cgroup) {
  const members = new Map(findMembers(run).map((entry) => [entry.pid, entry]));
  for (const pid of cgroup === null ? [] : cgroupPids(cgroup)) {
    const entry = members.has(pid) || pid === run.exclude ? undefined : readProcess(pid);
    if (entry) members.set(pid, entry);
  }
  return [...members.values()];
}

/**
 * Whether the process still exists; its PID may have been reused.
 * @param {ProcessEntry} entry
 */
function isThere({ pid, startTicks }) {
  return readProcess(pid)?.startTicks === startTicks;
}

/**
 * Signals a process unless its PID was reused.
 * @param {ProcessEntry} entry
 * @param {NodeJS.Signals} signal
 */
export function sendSignal(entry, signal) {
  if (!isThere(entry)) return;
  try {
    process.kill(entry.pid, signal);
  } catch {
    // The process has ended. Processes that must not be signalled are never members.
  }
}

/**
 * PIDs in a cgroup and its descendants.
 * @param {string} cgroup
 * @returns {number[]}
 */
export function cgroupPids(cgroup) {
  try {
    const own = readFileSync(join(cgroup, "cgroup.procs"), "latin1").split("\n").filter(Boolean).map(Number);
    const children = readdirSync(cgroup, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return own.concat(...children.map((child) => cgroupPids(join(cgroup, child.name))));
  } catch {
    return [];
  }
}

/**
 * Kills a whole cgroup at once, so that no fork escapes (Linux 5.14; before, the processes are killed one by one).
 * @param {string} cgroup
 */
function killCgroup(cgroup) {
  const file = join(cgroup, "cgroup.kill");
  try {
    if (existsSync(file)) writeFileSync(file, "1");
  } catch {
    // Not writable: the members are killed one by one.
  }
}

/**
 * Freezes or thaws a cgroup (Linux 5.2).
 * @param {string} cgroup
 * @param {boolean} isToFreeze
 * @returns {boolean} false if that is not possible
 */
export function freezeCgroup(cgroup, isToFreeze) {
  try {
    writeFileSync(join(cgroup, "cgroup.freeze"), isToFreeze ? "1" : "0");
    return true;
  } catch {
    return false;
  }
}
