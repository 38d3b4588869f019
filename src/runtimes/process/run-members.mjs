/** Which of the processes of this machine belong to a run. */
import { readProcFile } from "../../lib/proc-file.mjs";
import { readProcessTable } from "../../lib/process-table.mjs";
import { carriesCookie } from "../../lib/run-cookie.mjs";

/** @import { ProcessEntry } from "../../lib/process-table.mjs" */

/**
 * @typedef {object} Run
 * @property {string} runId what the environment of its processes carries as `SVC_RUN_ID`
 * @property {number} startTicks who started before is no member: processes of a run start after its supervisor. 0 where that is
 *   not known
 * @property {number} uid only processes of this user are taken for members
 * @property {ReadonlySet<number>} sessions sessions known to be the run's own
 * @property {number} exclude a pid that is never a member: the supervisor
 */

/** What most environments fit into, and `/proc/<pid>/status`. */
const bufferBytes = 16 * 1024;

/**
 * Real uid of a process. The owner of `/proc/<pid>` will not do: it is root's for one that is not dumpable.
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
  const candidates = table.filter(
    ({ pid, sid, startTicks }) => pid > 1 && pid !== run.exclude && sid !== 0 && startTicks >= run.startTicks,
  );
  const living = new Set(table.map((entry) => entry.pid));
  /** @param {ProcessEntry} entry */
  const add = (entry) => {
    members.set(entry.pid, entry);
    // A session whose leader is gone, or is a member itself, holds nothing but relatives.
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
