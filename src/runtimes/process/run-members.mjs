/** Which of the processes of this machine belong to a run. */
import { readFileSync } from "node:fs";
import { readProcessTable } from "../../lib/process-table.mjs";
import { carriesCookie } from "../../lib/run-cookie.mjs";

/** @import { ProcessEntry } from "../../lib/process-table.mjs" */

/**
 * @typedef {object} Run
 * @property {string} runId what the environment of its processes carries as `SVC_RUN_ID`
 * @property {number} uid only processes of this user are taken for members
 * @property {ReadonlySet<number>} sessions sessions known to be the run's own
 * @property {number} exclude a pid that is never a member: the supervisor
 */

/**
 * Real uid of a process. The owner of `/proc/<pid>` will not do: it is root's for one that is not dumpable.
 * @param {number} pid
 */
function readUid(pid) {
  try {
    const status = readFileSync(`/proc/${String(pid)}/status`, "latin1");
    return Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
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
