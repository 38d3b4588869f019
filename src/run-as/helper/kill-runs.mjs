/**
 * Finds leftover processes of a command by their environment. A child that forks twice and calls setsid(2) leaves its
 * group, its session and its ancestors, but the environment that it was started with still contains the run ID. A child
 * that also clears its environment escapes if its ancestors are gone; only a cgroup would contain it. See
 * run-family.mjs.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { readProcFile } from "../../sys/proc-file.mjs";
import { listPids, readProcess } from "../../sys/process-table.mjs";
import { carriesCookie } from "../../sys/run-cookie.mjs";

const maxRounds = 50;
const roundMs = 20;
/** Most environments fit. */
const bufferBytes = 16 * 1024;

/**
 * Kills every process of the runs, and what they fork in the meantime, until none are left.
 * @param {readonly string[]} runIds
 * @returns {Promise<number>} number of killed processes
 */
export async function killRuns(runIds) {
  let killed = 0;
  for (let round = 0; round < maxRounds; round++) {
    const found = killOnce(runIds);
    killed += found.killed;
    if (found.killed === 0 && !found.isUnsure) break;
    // Killed processes stay in /proc until their parent reaps them, but their environment is empty at once.
    await sleep(roundMs);
  }
  return killed;
}

/**
 * @param {readonly string[]} runIds
 * @returns {{ killed: number, isUnsure: boolean }} `isUnsure`: a process has no readable environment yet
 */
function killOnce(runIds) {
  const found = { killed: 0, isUnsure: false };
  /** A process that forks and exits during the scan leaves a child that was not in the list. */
  const seen = new Set([process.pid]);
  const buffer = Buffer.allocUnsafeSlow(bufferBytes);
  for (let pass = 0; pass < maxRounds; pass++) {
    const newcomers = listPids().filter((pid) => !seen.has(pid));
    if (newcomers.length === 0) break;
    for (const pid of newcomers) {
      seen.add(pid);
      inspectProcess(pid, { runIds, found, buffer });
    }
  }
  return found;
}

/**
 * @param {number} pid
 * @param {{ runIds: readonly string[], found: { killed: number, isUnsure: boolean }, buffer: Buffer }} look
 */
function inspectProcess(pid, { runIds, found, buffer }) {
  try {
    const environment = readProcFile(`/proc/${pid}/environ`, buffer);
    if (environment.length === 0) {
      found.isUnsure ||= !isWithoutEnvironment(pid, buffer);
      return;
    }
    if (!runIds.some((id) => carriesCookie(environment, id))) return;
    // Nothing is awaited between the check and the signal, so the PID still belongs to the checked process.
    process.kill(pid, "SIGKILL");
    found.killed += 1;
  } catch {
    // Owned by another user, or exited.
  }
}

/**
 * Whether the process has really no environment: it is dead, a kernel thread, or was started without one. Otherwise it
 * is just executing a program, and has no readable environment until the program has its own.
 * @param {number} pid
 * @param {Buffer} buffer
 */
function isWithoutEnvironment(pid, buffer) {
  const before = readProcess(pid);
  if (before === undefined || before.isKernelThread) return true;
  const isEmpty = readProcFile(`/proc/${pid}/environ`, buffer).length === 0;
  return isEmpty && before.environmentEnd > 0 && readProcess(pid)?.environmentEnd === before.environmentEnd;
}
