/**
 * The processes of this machine as `/proc` shows them (proc_pid_stat(5)), and which of them belong to a run.
 */
import { readFileSync, readdirSync } from "node:fs";

/**
 * @typedef {object} ProcessEntry
 * @property {number} pid
 * @property {string} state one letter; `Z` and `X` are dead already
 * @property {number} ppid
 * @property {number} pgid
 * @property {number} sid
 * @property {number} cpuTicks user and system time together, in clock ticks
 * @property {number} startTicks start after boot, in clock ticks: with the pid it names the process for good
 * @property {number} rssPages
 */

/**
 * @typedef {object} Run
 * @property {string} runId what the environment of its processes carries as `SVC_RUN_ID`
 * @property {number} uid only processes of this user are taken for members
 * @property {ReadonlySet<number>} sessions sessions known to be the run's own
 * @property {number} exclude a pid that is never a member: the supervisor
 */

/**
 * Reads one line of `/proc/<pid>/stat`. The command name may hold anything, so fields count from its last `)`.
 * @param {string} text
 * @returns {ProcessEntry}
 */
export function parseStat(text) {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  /** @param {number} n field number of proc_pid_stat(5) */
  const field = (n) => Number(fields[n - 3]);
  return {
    pid: Number.parseInt(text, 10),
    state: fields[0] ?? "X",
    ppid: field(4),
    pgid: field(5),
    sid: field(6),
    cpuTicks: field(14) + field(15),
    startTicks: field(22),
    rssPages: field(24),
  };
}

/**
 * @param {number} pid
 * @returns {ProcessEntry | undefined} `undefined` when there is no such process, or only its remains
 */
export function readProcess(pid) {
  try {
    const entry = parseStat(readFileSync(`/proc/${String(pid)}/stat`, "latin1"));
    return entry.state === "Z" || entry.state === "X" ? undefined : entry;
  } catch {
    return undefined;
  }
}

/** @returns {ProcessEntry[]} every living process */
function readProcessTable() {
  const table = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const entry = Number.isInteger(pid) ? readProcess(pid) : undefined;
    if (entry) table.push(entry);
  }
  return table;
}

/**
 * Whether an environment as `/proc/<pid>/environ` gives it carries the run's cookie.
 * @param {Buffer} environ
 * @param {string} runId
 */
export function carriesCookie(environ, runId) {
  const cookie = `SVC_RUN_ID=${runId}\0`;
  return environ.subarray(0, cookie.length).equals(Buffer.from(cookie)) || environ.includes(`\0${cookie}`);
}

/**
 * Real uid of a process. The owner of `/proc/<pid>` will not do: it is root's for one that is not dumpable.
 * @param {string} status text of `/proc/<pid>/status`
 */
export function parseUid(status) {
  return Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
}

/** @param {number} pid */
function readUid(pid) {
  try {
    return parseUid(readFileSync(`/proc/${String(pid)}/status`, "latin1"));
  } catch {
    return -1;
  }
}

/**
 * @param {number} pid
 * @param {string} runId
 */
function readCarriesCookie(pid, runId) {
  try {
    return carriesCookie(readFileSync(`/proc/${String(pid)}/environ`), runId);
  } catch {
    return false;
  }
}

/**
 * The members of a run: processes of its sessions, those that carry its cookie, and the descendants and sessions of
 * all these. A process that left the session by setsid, was orphaned by a double fork *and* wiped its environment is
 * out of reach without a cgroup.
 * @param {Run} run
 * @param {ProcessEntry[]} [table]
 * @returns {ProcessEntry[]}
 */
export function findMembers(run, table = readProcessTable()) {
  const sessions = new Set(run.sessions);
  /** @type {Map<number, ProcessEntry>} */
  const members = new Map();
  const candidates = table.filter((entry) => entry.pid > 1 && entry.pid !== run.exclude && entry.sid !== 0);
  const living = new Set(table.map((entry) => entry.pid));
  /** @param {ProcessEntry} entry */
  const add = (entry) => {
    members.set(entry.pid, entry);
    // A session whose leader is gone, or is a member itself, holds nothing but relatives.
    if (entry.sid === entry.pid || !living.has(entry.sid)) sessions.add(entry.sid);
  };

  const unrelated = [];
  for (const entry of candidates) {
    if (readUid(entry.pid) !== run.uid) continue;
    if (sessions.has(entry.sid) || readCarriesCookie(entry.pid, run.runId)) add(entry);
    else unrelated.push(entry);
  }
  for (let found = true, rest = unrelated; found;) {
    found = false;
    rest = rest.filter((entry) => {
      if (!members.has(entry.ppid) && !sessions.has(entry.sid)) return true;
      add(entry);
      found = true;
      return false;
    });
  }
  return [...members.values()];
}
