/**
 * Finds what a command left behind. A child that forks twice and calls setsid(2) leaves its group, its session and its
 * ancestors; the environment that it was started with still names the run. (One that wipes its
 * environment too escapes when its ancestors are gone: only a cgroup would hold that; see run-family.mjs.)
 */
import { setTimeout as sleep } from "node:timers/promises";
import { readProcFile } from "../../lib/proc-file.mjs";
import { listPids, readProcess } from "../../lib/process-table.mjs";
import { carriesCookie } from "../../lib/run-cookie.mjs";

const maxRounds = 50;
const roundMs = 20;
/** What most environments fit into. */
const bufferBytes = 16 * 1024;

/**
 * Kills every process of these runs, and what they fork meanwhile, until none is left.
 * @param {readonly string[]} runIds
 * @returns {Promise<number>} How many got SIGKILL.
 */
export async function killRuns(runIds) {
  let killed = 0;
  for (let round = 0; round < maxRounds; round++) {
    const found = killOnce(runIds);
    killed += found.killed;
    if (found.killed === 0 && !found.isUnsure) break;
    // They are gone from /proc only once their parent has reaped them, but their environment is empty at once.
    await sleep(roundMs);
  }
  return killed;
}

/**
 * @param {readonly string[]} runIds
 * @returns {{ killed: number, isUnsure: boolean }} Unsure where somebody shows no environment yet.
 */
function killOnce(runIds) {
  const found = { killed: 0, isUnsure: false };
  /** Who forks and ends during a look leaves somebody who was not in the list. */
  const seen = new Set([process.pid]);
  const buffer = Buffer.allocUnsafeSlow(bufferBytes);
  for (let pass = 0; pass < maxRounds; pass++) {
    const newcomers = listPids().filter((pid) => !seen.has(pid));
    if (newcomers.length === 0) break;
    for (const pid of newcomers) {
      seen.add(pid);
      lookAt(pid, { runIds, found, buffer });
    }
  }
  return found;
}

/**
 * @param {number} pid
 * @param {{ runIds: readonly string[], found: { killed: number, isUnsure: boolean }, buffer: Buffer }} look
 */
function lookAt(pid, { runIds, found, buffer }) {
  try {
    const environment = readProcFile(`/proc/${pid}/environ`, buffer);
    if (environment.length === 0) {
      found.isUnsure ||= !isWithoutEnvironment(pid, buffer);
      return;
    }
    if (!runIds.some((id) => carriesCookie(environment, id))) return;
    // Nothing is awaited between the look and the signal, so the pid is the one that was looked at.
    process.kill(pid, "SIGKILL");
    found.killed += 1;
  } catch {
    // Another user's, or gone.
  }
}

/**
 * Whether it is dead, a thread of the kernel's, or was started with no environment, rather than that it executes a program at
 * this moment: then it shows none until the program has its own.
 * @param {number} pid
 * @param {Buffer} buffer
 */
function isWithoutEnvironment(pid, buffer) {
  const before = readProcess(pid);
  if (before === undefined || before.isKernelThread) return true;
  const isEmpty = readProcFile(`/proc/${pid}/environ`, buffer).length === 0;
  return isEmpty && before.environmentEnd > 0 && readProcess(pid)?.environmentEnd === before.environmentEnd;
}
