import type { ProcessEntry } from "../../lib/process-table.mjs";
import type { ProcessOrigin } from "./proc-reader.ts";

/** The processes of one run of an app. */
export interface SampledRun {
  appId: string;
  ownerUid: number;
  runId: string;
  /** The main process, when there is one: its session is the app's. */
  pid?: number;
}

/**
 * The processes of each run, by app id: its session, who carries its cookie, and their descendants.
 * @param origins by pid; a cookie of somebody who owns none of the runs counts for nothing
 */
export function membersOf(
  runs: readonly SampledRun[],
  table: readonly ProcessEntry[],
  origins: ReadonlyMap<number, ProcessOrigin>,
): Map<string, ProcessEntry[]> {
  const sessions = new Map(runs.map((run) => [sessionKey(run.pid, run.ownerUid), run]));
  const byRunId = new Map(runs.map((run) => [run.runId, run]));
  const owners = new Set(runs.map(({ ownerUid }) => ownerUid));
  const byPid = new Map(table.map((entry) => [entry.pid, entry]));
  const runOf = new Map<number, SampledRun | undefined>();
  for (const { pid, sid } of table) {
    const { uid, runId } = origins.get(pid) ?? {};
    if (uid === undefined) continue;
    // Which session is the app's is its owner's word, and must not show them what another user's processes do.
    const ofSession = sessions.get(sessionKey(sid, uid));
    const ofCookie = runId !== undefined && owners.has(uid) ? byRunId.get(runId) : undefined;
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

/** The run of a process or else of its nearest ancestor that has one. */
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
    // Guards against a cycle, which a table read while pids are reused can show.
    runOf.set(at.pid, undefined);
  }
  for (const pid of path) runOf.set(pid, run);
  return run;
}
