/** The processes of this host from `/proc` (proc_pid_stat(5)). Also used by programs that svc starts as separate processes. */
import { readdirSync } from "node:fs";
import { readProcFile } from "./proc-file.mjs";

/** `PF_KTHREAD` of the kernel's `sched.h`. */
const kernelThreadFlag = 0x0020_0000;
/** Longer than any line of `/proc/<pid>/stat`. */
const statBytes = 2048;

/**
 * @typedef {object} ProcessEntry
 * @property {number} pid
 * @property {string} state one letter; see `isDead`
 * @property {number} ppid
 * @property {number} pgid
 * @property {number} sid
 * @property {number} cpuTicks user and system time together, in clock ticks
 * @property {number} startTicks start time after boot in clock ticks; together with the PID it identifies the process
 *   within this boot
 * @property {number} rssPages
 * @property {boolean} isKernelThread
 * @property {number} environmentEnd address at which its environment ends, which changes when it executes another
 *   program; 0 until it has one, and for processes whose memory the reader may not read
 */

/**
 * Reads one line of `/proc/<pid>/stat`.
 * @param {string} text
 * @returns {ProcessEntry}
 * @throws Error if the text is not such a line
 */
export function parseStat(text) {
  // The program's name may contain any character, so fields are counted from the last `)`.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  /** @param {number} n field number of proc_pid_stat(5) */
  const field = (n) => Number(fields[n - 3]);
  const startTicks = field(22);
  if (!Number.isSafeInteger(startTicks))
    throw new Error(`"${text.trim()}" is not a line of /proc/<pid>/stat`);
  return {
    pid: Number.parseInt(text, 10),
    state: fields[0] ?? "",
    ppid: field(4),
    pgid: field(5),
    sid: field(6),
    cpuTicks: field(14) + field(15),
    startTicks,
    rssPages: field(24),
    isKernelThread: (field(9) & kernelThreadFlag) !== 0,
    environmentEnd: field(51),
  };
}

/**
 * Whether a process is dead and only waits to be reaped by its parent.
 * @param {ProcessEntry} entry
 */
export function isDead({ state }) {
  return state === "Z" || state === "X";
}

/** @returns {number[]} */
export function listPids() {
  return readdirSync("/proc").map(Number).filter(Number.isInteger);
}

/**
 * @param {number} pid
 * @param {Buffer} [buffer] to read into
 * @returns {ProcessEntry | undefined} `undefined` if the process does not exist or is dead
 */
export function readProcess(pid, buffer = Buffer.allocUnsafe(statBytes)) {
  try {
    const entry = parseStat(readProcFile(`/proc/${String(pid)}/stat`, buffer).toString("latin1"));
    return isDead(entry) ? undefined : entry;
  } catch {
    return undefined;
  }
}

/** @returns {ProcessEntry[]} every living process */
export function readProcessTable() {
  const buffer = Buffer.allocUnsafe(statBytes);
  return listPids()
    .map((pid) => readProcess(pid, buffer))
    .filter((entry) => entry !== undefined);
}
