/** What shows of runs beside their jobs: the newest one, and the firings that were skipped. */
import type { ScheduleSkipReason } from "../../../gen/svc/v1/words.ts";
import type { Store } from "../../store/store.ts";
import { keyText } from "../jobs/job-key.ts";
import type { JobKey } from "../jobs/job.ts";
import { runOfRow, selectRuns, type RunRow } from "./run-row.ts";
import type { Run } from "./run.ts";

/** Firings of a job that were skipped for one reason. */
export interface JobSkip {
  readonly reason: ScheduleSkipReason;
  readonly count: number;
  /** The newest of them, unix seconds. */
  readonly lastUnix: number;
}

export interface RunSummary {
  /** The newest run, without its output. */
  readonly last?: Run;
  /** By reason. */
  readonly skips: readonly JobSkip[];
}

interface SkipRow {
  owner_uid: number;
  id: string;
  reason: string;
  count: number;
  last_unix: number;
}

/** One range of the index, however many jobs lie in it. */
const withinRange = "(owner_uid, jobs.id) >= (?, ?) AND (owner_uid, jobs.id) <= (?, ?)";

/** By `keyText`; a job that never ran and skipped nothing has none. @param keys by owner and id */
export function readSummaries(store: Store, keys: readonly JobKey[]): ReadonlyMap<string, RunSummary> {
  const [first, last] = [keys[0], keys.at(-1)];
  if (first === undefined || last === undefined) return new Map();
  const range = [first.ownerUid, first.id, last.ownerUid, last.id] as const;
  const skips = new Map<string, JobSkip[]>();
  for (const row of store.all<SkipRow>(
    `SELECT owner_uid, id, reason, count, last_unix FROM jobs JOIN job_skips ON job = n
     WHERE ${withinRange} ORDER BY reason`,
    ...range,
  )) {
    const key = keyText({ ownerUid: row.owner_uid, id: row.id });
    const skip = { reason: row.reason as ScheduleSkipReason, count: row.count, lastUnix: row.last_unix };
    const known = skips.get(key);
    if (known === undefined) skips.set(key, [skip]);
    else known.push(skip);
  }
  const summaries = new Map<string, RunSummary>();
  for (const [key, list] of skips) summaries.set(key, { skips: list });
  for (const row of store.all<RunRow>(
    `${selectRuns} WHERE ${withinRange} AND runs.id = (SELECT max(id) FROM runs WHERE job = jobs.n)`,
    ...range,
  )) {
    const run = runOfRow(row);
    const key = keyText(run.job);
    summaries.set(key, { skips: [], ...summaries.get(key), last: run });
  }
  return summaries;
}
