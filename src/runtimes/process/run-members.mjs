/** Finds the processes of a run. */
import { readProcFile } from "../../sys/proc-file.mjs";
import { readProcessTable } from "../../sys/process-table.mjs";
import { carriesCookie } from "../../sys/run-cookie.mjs";

/** @import { ProcessEntry } from "../../sys/process-table.mjs" */

/**
 * @typedef {object} Run
 * @property {string} runId value of `SVC_RUN_ID` in the environment of its processes
 * @property {number} startTicks processes that started earlier are not members, because a run's processes start after
 *   the supervisor. 0 if unknown
 * @property {number} uid only processes of this user can be members
 * @property {ReadonlySet<number>} sessions known sessions of the run
 * @property {number} exclude a PID that is never a member: the supervisor
 */

/** Enough for most environments and for `/proc/<pid>/status`. */
const bufferBytes = 16 * 1024;

/**
 * Real uid of a process. The owner of `/proc/<pid>` is not enough: it is root for a process that is not dumpable.
 * @param {number} pid
 * @param {Buffer} buffer
 */
function readUid(pid, buffer) {
  try {
    const status = readProcFile(`/proc/${String(pid)}/status`, buffer).toString("latin1");
    return Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
  } catch {
    return -1;
  }
}

/**
 * @param {number} pid
 * @param {string} runId
 * @param {Buffer} buffer
 */
function readCarriesCookie(pid, runId, buffer) {
  try {
    return carriesCookie(readProcFile(`/proc/${String(pid)}/environ`, buffer), runId);
  } catch {
    return false;
  }
}

/**
 * The members of a run: processes of its sessions, processes with its cookie, and the descendants and sessions of
 * these. Without a cgroup, a process escapes if it left the session by setsid, was orphaned by a double fork *and*
 * cleared its environment.
 * @param {Run} run
 * @returns {ProcessEntry[]}
 */
export function findMembers(run) {
  const table = readProcessTable();
  const sessions = new Set(run.sessions);
  /** @type {Map<number, ProcessEntry>} */
  const members = new Map();
  const candidates = table.filter(
    ({ pid, sid, startTicks }) => pid > 1 && pid !== run.exclude && sid !== 0 && startTicks >= run.startTicks,
  );
  const living = new Set(table.map((entry) => entry.pid));
  /** @param {ProcessEntry} entry */
  const add = (entry) => {
    members.set(entry.pid, entry);
    // A session without a leader, or led by a member, contains only relatives.
    if (entry.sid === entry.pid || !living.has(entry.sid)) sessions.add(entry.sid);
  };

  const unrelated = [];
  const buffer = Buffer.allocUnsafeSlow(bufferBytes);
  for (const entry of candidates) {
    if (readUid(entry.pid, buffer) !== run.uid) continue;
    if (sessions.has(entry.sid) || readCarriesCookie(entry.pid, run.runId, buffer)) add(entry);
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
