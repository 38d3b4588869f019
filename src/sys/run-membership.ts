import type { ProcessEntry } from "./process-table.mjs";
import type { ProcessOrigin } from "./proc-reader.ts";

/** A run of an app whose processes are sampled. */
export interface SampledRun {
  appId: string;
  ownerUid: number;
  runId: string;
  /** The main process, if there is one: its session is the app's session. */
  pid?: number;
}

/**
 * The processes of each run, by app ID: its session, processes with its cookie, and their descendants.
 * @param origins by PID; a cookie counts only on a process of the run's owner
 */
export function membersOf(
  runs: readonly SampledRun[],
  table: readonly ProcessEntry[],
  origins: ReadonlyMap<number, ProcessOrigin>,
): Map<string, ProcessEntry[]> {
  const sessions = new Map(runs.map((run) => [sessionKey(run.pid, run.ownerUid), run]));
  const byCookie = new Map(runs.map((run) => [cookieKey(run.runId, run.ownerUid), run]));
  const byPid = new Map(table.map((entry) => [entry.pid, entry]));
  const runOf = new Map<number, SampledRun | undefined>();
  for (const { pid, sid } of table) {
    const { uid, runId } = origins.get(pid) ?? {};
    if (uid === undefined) continue;
    // Keyed by owner: users choose the session and the cookie of their apps, and must not see what another user's
    // processes do.
    const ofSession = sessions.get(sessionKey(sid, uid));
    const ofCookie = runId === undefined ? undefined : byCookie.get(cookieKey(runId, uid));
    const run = ofSession ?? ofCookie;
    if (run) runOf.set(pid, run);
  }

  const members = Map.groupBy(table, (entry) => nearestRun(entry, byPid, runOf)?.appId ?? "");
  members.delete("");
  return members;
}

function sessionKey(sid: number | undefined, uid: number): string {
  return `${String(sid)} of uid ${uid}`;
}

function cookieKey(runId: string, uid: number): string {
  return `${uid} ${runId}`;
}

/** The run of a process, or of its nearest ancestor that has one. */
function nearestRun(
  entry: ProcessEntry,
  byPid: ReadonlyMap<number, ProcessEntry>,
  runOf: Map<number, SampledRun | undefined>,
): SampledRun | undefined {
  const path: number[] = [];
  let run: SampledRun | undefined;
  for (let at: ProcessEntry | undefined = entry; at !== undefined; at = byPid.get(at.ppid)) {
    if (runOf.has(at.pid)) {
      run = runOf.get(at.pid);
      break;
    }
    path.push(at.pid);
    // Guards against a cycle, which a table can contain if PIDs are reused while it is read.
    runOf.set(at.pid, undefined);
  }
  for (const pid of path) runOf.set(pid, run);
  return run;
}
