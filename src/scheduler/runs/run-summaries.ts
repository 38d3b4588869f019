/** Summaries of runs in job lists: the newest run, and skipped firings. */
import { ScheduleSkipReasons, type ScheduleSkipReason } from "../../../gen/svc/v1/values.ts";
import { isCount, isInstant, isInteger, oneOf } from "../../store/row-document.ts";
import { readIfWhole, type RowKind } from "../../store/row-reader.ts";
import type { Store } from "../../store/store.ts";
import { keyText, type JobKey } from "../jobs/job.ts";
import { runOfRow, selectRunsInBrief, type RunRow } from "./run-row.ts";
import type { Run } from "./run.ts";

/** Firings of a job that were skipped for one reason. */
export interface JobSkip {
  readonly reason: ScheduleSkipReason;
  readonly count: number;
  /** The newest skipped firing, unix seconds. */
  readonly lastUnix: number;
}

export interface RunSummary {
  /** The newest run, without output, with the start of its error. */
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

export const skipRows: RowKind<Omit<SkipRow, "owner_uid" | "id">, JobSkip> = {
  table: "job_skips",
  columns: {
    ...{ job: isInteger, reason: oneOf(ScheduleSkipReasons), count: isCount },
    last_unix: (value) => isInteger(value) && isInstant((value as number) * 1000),
  },
  nameOf: ({ reason }) => `the skip count of a job (${reason})`,
  remedy: () => "the count restarts with the next skip",
  read: ({ reason, count, last_unix }) => ({
    reason: reason as ScheduleSkipReason,
    ...{ count, lastUnix: last_unix },
  }),
};

type Summaries = ReadonlyMap<string, RunSummary>;

/** Cached pages, each of at most a thousand jobs. */
const maxPages = 16;

/**
 * Caches summaries until the next commit, because lists are requested repeatedly and reading takes most of
 * the time.
 */
export class RunSummaries {
  readonly #store: Store;
  #known = new Map<string, Summaries>();
  #version: number | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Like {@link readSummaries}. */
  of(keys: readonly JobKey[]): Summaries {
    const version = this.#store.get<{ data_version: number }>("PRAGMA data_version")?.data_version;
    if (version !== this.#version || this.#known.size >= maxPages) this.#known = new Map();
    this.#version = version;
    const page = [keys[0], keys.at(-1)].map((key) => key && keyText(key)).join(" ");
    const summaries = this.#known.get(page) ?? readSummaries(this.#store, keys);
    this.#known.set(page, summaries);
    return summaries;
  }
}

/** One index range, for any number of jobs. */
const withinRange = "(owner_uid, jobs.id) >= (?, ?) AND (owner_uid, jobs.id) <= (?, ?)";

/**
 * Summaries by `keyText` for all jobs from the first to the last key; none for jobs without runs and skips.
 * @param keys by owner and ID
 */
export function readSummaries(store: Store, keys: readonly JobKey[]): Summaries {
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
    const skip = readIfWhole(skipRows, row);
    if (skip === undefined) continue;
    const known = skips.get(key);
    if (known === undefined) skips.set(key, [skip]);
    else known.push(skip);
  }
  const summaries = new Map<string, RunSummary>();
  for (const [key, list] of skips) summaries.set(key, { skips: list });
  for (const row of store.all<RunRow>(
    `${selectRunsInBrief} WHERE ${withinRange} AND runs.id = (SELECT max(id) FROM runs WHERE job = jobs.n)`,
    ...range,
  )) {
    const run = runOfRow(row);
    const key = keyText(run.job);
    summaries.set(key, { skips: [], ...summaries.get(key), last: run });
  }
  return summaries;
}
