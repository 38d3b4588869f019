/**
 * Ends every process of a run: a stop signal, a grace period, then SIGKILL, repeated until none is left, so that
 * double-forked processes and those born meanwhile end too.
 */
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readProcess } from "../../lib/process-table.mjs";
import { findMembers } from "./run-members.mjs";

/** @import { ProcessEntry } from "../../lib/process-table.mjs" */
/** @import { Run } from "./run-members.mjs" */

/**
 * @typedef {object} EndOptions
 * @property {NodeJS.Signals} signal
 * @property {number} graceMs from the signal to SIGKILL
 * @property {number} [forceMs] how long SIGKILL is repeated before the rest is given up; a process in uninterruptible sleep cannot die
 * @property {string | null} [cgroup] the app's cgroup v2, whose members are the run's too
 */

const pollMs = 50;
const forcePollMs = 10;

/**
 * @param {Run} run
 * @param {EndOptions} options
 * @returns {Promise<number>} how many processes are left: 0 but for those that cannot die
 */
export async function endProcesses(run, { signal, graceMs, forceMs = 10_000, cgroup = null }) {
  const members = () => allMembers(run, cgroup);
  // What is frozen hears no signal but the last.
  if (cgroup !== null) freezeCgroup(cgroup, false);

  let left = members();
  if (left.length === 0) return 0;
  if (signal !== "SIGKILL") {
    for (const entry of left) {
      sendSignal(entry, signal);
      // One that is stopped would not notice before SIGKILL.
      sendSignal(entry, "SIGCONT");
    }
    const deadline = process.uptime() * 1000 + graceMs;
    while (left.length > 0 && process.uptime() * 1000 < deadline) {
      await sleep(Math.min(pollMs, Math.max(1, deadline - process.uptime() * 1000)));
      // To look at all processes of the machine takes milliseconds, and says no more while one of these is there.
      if (!left.some(isThere)) left = members();
    }
    if (left.length > 0) left = members();
  }
  const deadline = process.uptime() * 1000 + forceMs;
  while (left.length > 0 && process.uptime() * 1000 < deadline) {
    if (cgroup !== null) killCgroup(cgroup);
    for (const entry of left) sendSignal(entry, "SIGKILL");
    await sleep(forcePollMs);
    left = members();
  }
  return left.length;
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
 * Whether it lives: its pid may have been given to another since.
 * @param {ProcessEntry} entry
 */
function isThere({ pid, startTicks }) {
  return readProcess(pid)?.startTicks === startTicks;
}

/**
 * Signals a process if it is still the one that was looked at.
 * @param {ProcessEntry} entry
 * @param {NodeJS.Signals} signal
 */
export function sendSignal(entry, signal) {
  if (!isThere(entry)) return;
  try {
    process.kill(entry.pid, signal);
  } catch {
    // It ended by itself in between; what must not be signalled is not found as a member.
  }
}

/**
 * The pids in a cgroup and all beneath it.
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
 * Kills a whole cgroup at once, which no fork can outrun (Linux 5.14; before that the pids one by one).
 * @param {string} cgroup
 */
function killCgroup(cgroup) {
  const file = join(cgroup, "cgroup.kill");
  try {
    if (existsSync(file)) writeFileSync(file, "1");
  } catch {
    // Not ours to write to: the members are killed one by one.
  }
}

/**
 * Freezes a cgroup (Linux 5.2), or lets it go on.
 * @param {string} cgroup
 * @param {boolean} isToFreeze
 * @returns {boolean} false where that is not possible
 */
export function freezeCgroup(cgroup, isToFreeze) {
  try {
    writeFileSync(join(cgroup, "cgroup.freeze"), isToFreeze ? "1" : "0");
    return true;
  } catch {
    return false;
  }
}
