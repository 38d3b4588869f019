/** The stored form of a run: one row of `runs`, and its output in `run_outputs`. */
import {
  ScheduleRunStatuses,
  ScheduleRunTriggers,
  type ScheduleRunStatus,
  type ScheduleRunTrigger,
} from "../../../gen/svc/v1/values.ts";
import type { Executor } from "../../store/executors.ts";
import {
  damaged,
  isBetween,
  isBit,
  isCount,
  isInstant,
  isText,
  isInteger,
  oneOf,
  orNull,
  UnreadableRow,
  type Fields,
} from "../../store/row-document.ts";
import { readIfWhole, type RowKind } from "../../store/row-reader.ts";
import type { Statement } from "../../store/store.ts";
import type { JobKey } from "../jobs/job.ts";
import type { Run, RunCause, RunOutcome } from "./run.ts";

/** Number of retained ended runs per job. */
export const maxRetainedRuns = 50;
/**
 * Stored output of all runs of a user in bytes, divided equally among the user's jobs. Without it, a thousand jobs would store 3 GiB
 * in the daemon's database, which is copied and checked as a whole.
 */
const maxUserOutputBytes = 128 * 1024 * 1024;

/** A row of a run as SQLite returns it, with the key of its job. */
export interface RunRow {
  id: number;
  number: number;
  owner_uid: number;
  job_id: string;
  trigger: string;
  attempt: number;
  scheduled_at: number | null;
  started_at: number;
  ended_at: number | null;
  status: string;
  exit_code: number | null;
  http_status: number | null;
  error: string;
  truncated: number;
  cut_short: number;
  boot_id: string | null;
  pid: number | null;
  start_ticks: number | null;
  output: string | null;
}

const commonColumns = `runs.id, number, jobs.owner_uid, jobs.id AS job_id, trigger, attempt, scheduled_at, started_at, ended_at,
  status, exit_code, http_status, truncated, cut_short, boot_id, pid, start_ticks`;

/** Runs without output; append conditions. */
export const selectRuns = `SELECT ${commonColumns}, error, NULL AS output FROM runs JOIN jobs ON jobs.n = runs.job`;

/** The same, with the start of the error. */
export const selectRunsInBrief = `SELECT ${commonColumns}, substr(error, 1, 1024) AS error, NULL AS output
  FROM runs JOIN jobs ON jobs.n = runs.job`;

/** Runs with output; append conditions. */
export const selectRunsWithOutput = `SELECT ${commonColumns}, error, output
  FROM runs JOIN jobs ON jobs.n = runs.job LEFT JOIN run_outputs ON run_outputs.run = runs.id`;

/** The number of the job with this key; null if it was removed. */
export const jobOfKey = "(SELECT n FROM jobs WHERE owner_uid = ? AND id = ?)";

const columns: Fields<Omit<RunRow, "owner_uid" | "job_id" | "output"> & { job: number }> = {
  ...{ id: isInteger, job: isInteger, number: isInteger },
  ...{ trigger: oneOf(ScheduleRunTriggers), status: oneOf(ScheduleRunStatuses), attempt: isCount },
  ...{ scheduled_at: orNull(isInstant), started_at: isInstant, ended_at: orNull(isInstant) },
  ...{ exit_code: orNull(isCode), http_status: orNull(isCount), error: isText },
  ...{ truncated: isBit, cut_short: isBit },
  ...{ boot_id: orNull(isText), pid: orNull(isInteger), start_ticks: orNull(isInteger) },
};

export const runRows: RowKind<RunRow, Run> = {
  table: "runs",
  columns,
  nameOf: ({ id }) => `run ${id} of a job`,
  remedy: () => `it is removed after ${maxRetainedRuns} more runs of its job, or with the job`,
  read: (row) => {
    if ((row.ended_at === null) !== (row.status === "RUNNING"))
      throw new UnreadableRow("it has an invalid end");
    return madeRun(row);
  },
};

export const outputRows: RowKind<{ run: number }, unknown> = {
  table: "run_outputs",
  columns: { run: isInteger, output: isText },
  nameOf: ({ run }) => `the output of run ${run} of a job`,
  remedy: runRows.remedy as () => string,
  read: () => undefined,
};

/** Reads a run. For an unreadable row, only the owner and whether it runs are known. */
export function runOfRow(row: RunRow): Run {
  return readIfWhole(runRows, row) ?? placeholderOf(row);
}

const endings = ScheduleRunStatuses.filter((status) => status !== "RUNNING");
const isEnding = oneOf(endings);

function placeholderOf({ id, number, owner_uid: ownerUid, job_id: jobId, started_at, status }: RunRow): Run {
  const startedAtMs = isInstant(started_at) ? started_at : 0;
  const ending = isEnding(status) ? status : "INTERRUPTED";
  const outcome = { status: ending, output: "", error: damaged, truncated: true } as const;
  const common = {
    id,
    number,
    job: { ownerUid, id: jobId },
    trigger: "manual",
    attempt: 1,
    startedAtMs,
  } as const;
  return status === "RUNNING" ? common : { ...common, endedAtMs: startedAtMs, outcome };
}

function madeRun(row: RunRow): Run {
  return {
    id: row.id,
    number: row.number,
    job: { ownerUid: row.owner_uid, id: row.job_id },
    trigger: row.trigger as ScheduleRunTrigger,
    attempt: row.attempt,
    ...(row.scheduled_at !== null && { scheduledAtMs: row.scheduled_at }),
    startedAtMs: row.started_at,
    ...(row.ended_at !== null && { endedAtMs: row.ended_at, outcome: outcomeOfRow(row) }),
  };
}

function outcomeOfRow(row: RunRow): RunOutcome {
  return {
    status: row.status as Exclude<ScheduleRunStatus, "RUNNING">,
    ...(row.exit_code !== null && { exitCode: row.exit_code }),
    ...(row.http_status !== null && { httpStatus: row.http_status }),
    output: row.output ?? "",
    error: row.error,
    truncated: row.truncated !== 0,
    ...(row.cut_short !== 0 && { isCutShort: true }),
  };
}

/** The executor of a current run. */
export function executorOfRow({ boot_id: bootId, pid, start_ticks: startTicks }: RunRow): Executor {
  return { bootId: bootId ?? "", pid: pid ?? 0, startTicks: startTicks ?? 0 };
}

/**
 * Opens a run. Conflicts: `changes` if the job was removed, `unique` during another run. Returns ID and
 * number.
 */
export function insertRun(key: JobKey, cause: RunCause, executor: Executor, nowMs: number): Statement {
  const { bootId, pid, startTicks } = executor;
  return {
    sql: `INSERT INTO runs (job, number, trigger, attempt, scheduled_at, started_at, status, boot_id, pid, start_ticks)
          SELECT n, coalesce(last, 0) + 1, ?, ?, ?, ?, 'RUNNING', ?, ?, ?
          FROM jobs LEFT JOIN run_numbers USING (owner_uid) WHERE owner_uid = ? AND id = ? RETURNING id, number`,
    params: [
      cause.trigger,
      cause.attempt,
      cause.scheduledAtMs ?? null,
      nowMs,
      bootId,
      pid,
      startTicks,
      key.ownerUid,
      key.id,
    ],
    changes: 1,
  };
}

/**
 * Closes a run of this executor, stores its output, and deletes the job's oldest runs, and of a user's job the oldest outputs.
 * Changes nothing if the run was removed or is already closed.
 */
export function closeRun(
  { id: runId, ownerUid }: { id: number; ownerUid: number },
  executor: Executor,
  outcome: RunOutcome,
  nowMs: number,
): Statement[] {
  const { bootId, pid, startTicks } = executor;
  const { status, exitCode, httpStatus, output, error, truncated, isCutShort = false } = outcome;
  return [
    // Before the run is closed, because only an open run accepts output.
    ...(output === "" ? [] : [storeOutput(runId, executor, output)]),
    {
      sql: `UPDATE runs SET status = ?, ended_at = max(?, started_at), exit_code = ?, http_status = ?, error = ?,
                            truncated = ?, cut_short = ?, boot_id = NULL, pid = NULL, start_ticks = NULL
            WHERE id = ? AND status = 'RUNNING' AND boot_id = ? AND pid = ? AND start_ticks = ?`,
      params: [
        status,
        nowMs,
        exitCode ?? null,
        httpStatus ?? null,
        error,
        truncated ? 1 : 0,
        isCutShort ? 1 : 0,
        runId,
        bootId,
        pid,
        startTicks,
      ],
    },
    {
      // Except the newest scheduled run, which marks the job's progress.
      sql: `DELETE FROM runs WHERE job = (SELECT job FROM runs WHERE id = ?1) AND status <> 'RUNNING' AND id <=
              (SELECT id FROM runs WHERE job = (SELECT job FROM runs WHERE id = ?1) AND status <> 'RUNNING'
               ORDER BY id DESC LIMIT 1 OFFSET ${maxRetainedRuns})
              AND id <> coalesce((SELECT max(id) FROM runs
               WHERE job = (SELECT job FROM runs WHERE id = ?1) AND trigger = 'schedule'), 0)`,
      params: [runId],
    },
    ...(ownerUid === 0 ? [] : removeOldOutputs(runId, ownerUid)),
  ];
}

/** Deletes the oldest outputs of a run's job, and marks their runs as truncated. The run's own output stays. */
function removeOldOutputs(runId: number, ownerUid: number): Statement[] {
  const old = `SELECT run FROM (
                 SELECT run, sum(octet_length(output)) OVER (ORDER BY run DESC) AS bytes
                 FROM runs JOIN run_outputs ON run_outputs.run = runs.id
                 WHERE job = (SELECT job FROM runs WHERE id = ?1))
               WHERE run < ?1 AND bytes > (SELECT ?2 / count(*) FROM jobs WHERE owner_uid = ?3)`;
  const params = [runId, maxUserOutputBytes, ownerUid];
  return [
    { sql: `UPDATE runs SET truncated = 1 WHERE id IN (${old})`, params },
    { sql: `DELETE FROM run_outputs WHERE run IN (${old})`, params },
  ];
}

/** Replaces the stored output of a current run; does nothing if it has ended. */
export function storeOutput(runId: number, executor: Executor, output: string): Statement {
  const { bootId, pid, startTicks } = executor;
  return {
    sql: `INSERT INTO run_outputs (run, output) SELECT id, ? FROM runs
          WHERE id = ? AND status = 'RUNNING' AND boot_id = ? AND pid = ? AND start_ticks = ?
          ON CONFLICT (run) DO UPDATE SET output = excluded.output`,
    params: [output, runId, bootId, pid, startTicks],
  };
}

/** Changes the outcome of a closed run. */
export function amendRun(runId: number, outcome: RunOutcome): Statement[] {
  const { status, exitCode, httpStatus, output, error, truncated } = outcome;
  return [
    {
      sql: `UPDATE runs SET status = ?, exit_code = ?, http_status = ?, error = ?, truncated = ?
            WHERE id = ? AND status <> 'RUNNING'`,
      params: [status, exitCode ?? null, httpStatus ?? null, error, truncated ? 1 : 0, runId],
    },
    { sql: "DELETE FROM run_outputs WHERE run = ?", params: [runId] },
    {
      sql: "INSERT INTO run_outputs (run, output) SELECT id, ?1 FROM runs WHERE id = ?2 AND ?1 <> ''",
      params: [output, runId],
    },
  ];
}

/** An `int32`. */
function isCode(value: unknown): boolean {
  return isBetween(value, -(2 ** 31), 2 ** 31 - 1);
}
