/**
 * The runs of all jobs: opened before anything is done, closed with what came of it, the last 50 of each job kept
 * (S 1.4.10, 2.8). A row that is RUNNING is the lock that keeps a job from running twice, in whatever process, and the
 * executor that it names is the lease (decisions 25).
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ScheduleSkipReason } from "../../../gen/svc/v1/words.ts";
import { notFound, SvcError } from "../../errors.ts";
import { Ticker } from "../../lib/ticker.ts";
import { isExecutorAlive, type Executor } from "../../store/executors.ts";
import { StoreConflict, type Statement, type Store } from "../../store/store.ts";
import type { JobKey } from "../jobs/job.ts";
import type { Run, RunCause, RunOutcome, StartedRun } from "./run.ts";
import {
  amendRun,
  closeRun,
  executorOfRow,
  insertRun,
  jobOfKey,
  keepOutput,
  keptRuns,
  runOfRow,
  selectRuns,
  selectRunsWithOutput,
  type RunRow,
} from "./run-row.ts";
import { RunWatch, type RunListener } from "./run-watch.ts";
import type { Log } from "../../lib/log.ts";

export interface RunLogOptions {
  store: Store;
  executor: Executor;
  now: () => number;
  log: Pick<Log, "info" | "error">;
  /** Hears at once of each run that this process begins, and of its end. */
  onOwn?: RunListener;
}

/** More than are tried again, or were begun by hand, since the last firing. */
const newestRuns = 1_000;
/** How often runs of processes that ended are looked for. */
const sweepIntervalMs = 5_000;
/** Of firings that were skipped, and of seconds: that of a damaged row is counted anew. */
const maxCount = 2 ** 32 - 1;
/** How often a run is opened anew that others close or leave behind in the same moment. */
const maxAttempts = 5;

/** Of a page of runs, roughly: what they printed and what went wrong. */
const maxPageBytes = 1 << 18;

export class RunLog implements AsyncDisposable {
  readonly #options: RunLogOptions;
  readonly #watch: RunWatch;
  /** Runs that this process really executes: a row of ours that is not among them was left behind. */
  readonly #live = new Set<number>();
  /** How many are being opened: a row of theirs may be seen before its id is known here. */
  #opening = 0;
  #skips: { statements: Statement[]; written: Promise<void> } | undefined;
  #sweeper: Ticker | undefined;

  constructor(options: RunLogOptions) {
    this.#options = options;
    this.#watch = new RunWatch(options.store);
  }

  /** Closes what processes that died left open, now and from time to time. */
  async start(): Promise<void> {
    await this.recover();
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#sweep());
  }

  /**
   * Opens a run, durably. While one of the job goes, that one is the answer; one whose executor is dead is closed as
   * INTERRUPTED first.
   *
   * @throws SvcError `not_found` when the job is gone; what the store throws
   */
  async open(key: JobKey, cause: RunCause): Promise<StartedRun> {
    const { store, executor, now } = this.#options;
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const startedAtMs = now();
      this.#opening++;
      try {
        const [inserted] = await store.write([insertRun(key, cause, executor, startedAtMs)]);
        const { id, number } = inserted?.rows?.[0] as { id: number; number: number };
        this.#live.add(id);
        const { ownerUid, id: jobId } = key;
        const run: Run = { ...cause, id, number, job: { ownerUid, id: jobId }, startedAtMs };
        this.#options.onOwn?.(run);
        return { started: true, run };
      } catch (error) {
        if (!(error instanceof StoreConflict)) throw error;
        if (error.reason === "changes") throw notFound("schedule", key.id);
      } finally {
        this.#opening--;
      }
      const row = this.#runningRow(key);
      // None: it ended in this very moment.
      if (row !== undefined && (await this.#isLive(row))) return { started: false, run: runOfRow(row) };
      if (row !== undefined) await this.#interrupt(row);
      else await sleep(attempt);
    }
    throw new SvcError("unavailable", `schedule "${key.id}" is started by others all the time; try again`);
  }

  /**
   * Closes a run that this process opened, durably, and lets go of the job's oldest ones. Works on a full disk too, then
   * without the output. Records nothing when the run is gone with its job. May be tried again when the store refuses.
   */
  async close(run: Run, outcome: RunOutcome): Promise<Run> {
    const endedAtMs = Math.max(this.#options.now(), run.startedAtMs);
    const kept = await this.#record(outcome, (some) =>
      closeRun(run.id, this.#options.executor, some, endedAtMs),
    );
    this.#live.delete(run.id);
    const ended: Run = { ...run, endedAtMs, outcome: kept };
    this.#options.onOwn?.(ended);
    return ended;
  }

  /** Keeps what a run that this process opened has printed so far: should this process die, it is what the run had said. */
  async keepOutput(runId: number, output: string): Promise<void> {
    await this.#options.store.write([keepOutput(runId, this.#options.executor, output)]);
  }

  /** Changes what was recorded of a run that has ended; nothing when it is gone. */
  async amend(run: Run, outcome: RunOutcome): Promise<Run> {
    return { ...run, outcome: await this.#record(outcome, (some) => amendRun(run.id, some)) };
  }

  /** Counts firings that were skipped, all of one turn in one transaction; nothing for a job that is gone. */
  async skip(key: JobKey, reason: ScheduleSkipReason, atMs: number, count = 1): Promise<void> {
    const skips = (this.#skips ??= this.#collectSkips());
    skips.statements.push({
      sql: `INSERT INTO job_skips (job, reason, count, last_unix)
            SELECT n, ?1, ?2, ?3 FROM jobs WHERE owner_uid = ?4 AND id = ?5
            ON CONFLICT (job, reason) DO UPDATE
            SET count = min(max(count, 0), ?6 - excluded.count) + excluded.count,
                last_unix = CASE WHEN last_unix BETWEEN 0 AND ?6 THEN max(last_unix, excluded.last_unix)
                                 ELSE excluded.last_unix END`,
      params: [reason, count, Math.floor(atMs / 1000), key.ownerUid, key.id, maxCount],
    });
    await skips.written;
  }

  /** The runs of a job, newest first. @param limit 1 to 50 @param before only those whose number is less */
  list(key: JobKey, limit = keptRuns, before = Number.MAX_SAFE_INTEGER): Run[] {
    return this.#options.store
      .all<RunRow>(
        `${selectRunsWithOutput} WHERE job = ${jobOfKey} AND number < ? ORDER BY runs.id DESC LIMIT ?`,
        key.ownerUid,
        key.id,
        before,
        limit,
      )
      .map(runOfRow);
  }

  /** The newest of them whose texts fit on a page, at least one: some milliseconds of work, where all may be 6 MiB. */
  page(key: JobKey, limit = keptRuns, before = Number.MAX_SAFE_INTEGER): { runs: Run[]; isLast: boolean } {
    const sizes = this.#options.store.all<{ bytes: number }>(
      `SELECT octet_length(error) + coalesce(octet_length(output), 0) AS bytes
       FROM runs LEFT JOIN run_outputs ON run_outputs.run = runs.id
       WHERE job = ${jobOfKey} AND number < ? ORDER BY runs.id DESC`,
      key.ownerUid,
      key.id,
      before,
    );
    let [count, left] = [0, maxPageBytes];
    while (count < Math.min(limit, sizes.length) && left > 0) left -= sizes[count++]?.bytes ?? 0;
    return { runs: this.list(key, count, before), isLast: count === sizes.length };
  }

  /** The newest run of a job that its trigger began, without its output. */
  lastScheduled(key: JobKey): Run | undefined {
    const sql = `${selectRuns} WHERE job = ${jobOfKey} AND trigger = 'schedule' ORDER BY runs.id DESC LIMIT 1`;
    const row = this.#options.store.get<RunRow>(sql, key.ownerUid, key.id);
    return row === undefined ? undefined : runOfRow(row);
  }

  /**
   * Until when the firings of a job are settled, unix milliseconds: by the newest run that its trigger began, or by the
   * newest one that was skipped. 0 when neither is on record.
   */
  settledUntil(key: JobKey, nowMs: number): number {
    const skip = this.#options.store.get<{ last: number | null }>(
      // A clock that was ahead for a while may have counted what is yet to come.
      `SELECT max(last_unix) AS last FROM job_skips WHERE job = ${jobOfKey} AND last_unix <= ?`,
      key.ownerUid,
      key.id,
      Math.floor(nowMs / 1000),
    );
    return Math.max((skip?.last ?? 0) * 1000, this.lastScheduled(key)?.scheduledAtMs ?? 0);
  }

  /** The latest firing of the newest runs of all jobs, unix milliseconds; 0 for none. */
  newestFiringMs(): number {
    const row = this.#options.store.get<{ ms: number | null }>(
      `SELECT max(scheduled_at) AS ms FROM (SELECT scheduled_at FROM runs ORDER BY id DESC LIMIT ${newestRuns})`,
    );
    return row?.ms ?? 0;
  }

  /** Whether a firing of a job, unix milliseconds, has a run on record. */
  hasFired(key: JobKey, scheduledAtMs: number): boolean {
    const sql = `SELECT 1 FROM runs WHERE job = ${jobOfKey} AND scheduled_at = ?`;
    return this.#options.store.get(sql, key.ownerUid, key.id, scheduledAtMs) !== undefined;
  }

  /** What started and what ended from an instant on, oldest first, of the newest runs of all jobs that are kept. */
  since(sinceMs: number): { runId: number; atMs: number; hasEnded: boolean }[] {
    const rows = this.#options.store.all<{ id: number; started_at: number; ended_at: number | null }>(
      `SELECT id, started_at, ended_at FROM (SELECT * FROM runs ORDER BY id DESC LIMIT ${newestRuns})
       WHERE started_at >= ?1 OR ended_at >= ?1`,
      sinceMs,
    );
    const news = rows.flatMap(({ id: runId, started_at, ended_at }) => [
      { runId, atMs: started_at, hasEnded: false },
      ...(ended_at === null ? [] : [{ runId, atMs: ended_at, hasEnded: true }]),
    ]);
    // A run may end in the millisecond in which it has started.
    return news
      .filter(({ atMs }) => atMs >= sinceMs)
      .sort((a, b) => a.atMs - b.atMs || a.runId - b.runId || Number(a.hasEnded) - Number(b.hasEnded));
  }

  /** A run with its output. */
  get(runId: number): Run | undefined {
    const row = this.#options.store.get<RunRow>(`${selectRunsWithOutput} WHERE runs.id = ?`, runId);
    return row === undefined ? undefined : runOfRow(row);
  }

  /** Whether a run is on record; it goes with its job. */
  has(runId: number): boolean {
    return this.#options.store.get("SELECT 1 FROM runs WHERE id = ?", runId) !== undefined;
  }

  /** The run of a job that goes. */
  runningOf(key: JobKey): Run | undefined {
    const row = this.#runningRow(key);
    return row === undefined ? undefined : runOfRow(row);
  }

  /** Resolves with a run as it ended, undefined when it is gone; whoever executes it. @throws the signal's reason */
  ended(runId: number, signal: AbortSignal): Promise<Run | undefined> {
    return this.#watch.until(signal, () => {
      const row = this.#options.store.get<{ status: string }>("SELECT status FROM runs WHERE id = ?", runId);
      return row?.status === "RUNNING" ? undefined : { run: row === undefined ? undefined : this.get(runId) };
    });
  }

  /**
   * Calls `listener` with each run as it starts and as it ends: at once for those of this process, within a second for
   * those of others.
   */
  onChange(listener: RunListener): Disposable {
    return this.#watch.listen(listener);
  }

  /** Closes the runs of processes that are gone as INTERRUPTED. */
  async recover(): Promise<void> {
    const sql = `${selectRuns} WHERE status = 'RUNNING' ORDER BY runs.id`;
    for (const row of this.#options.store.all<RunRow>(sql)) {
      if (!(await this.#isLive(row))) await this.#interrupt(row);
    }
  }

  #collectSkips(): { statements: Statement[]; written: Promise<void> } {
    const statements: Statement[] = [];
    const written = Promise.resolve().then(async () => {
      this.#skips = undefined;
      await this.#options.store.write(statements);
    });
    return { statements, written };
  }

  /** Writes the outcome, on a full disk without the output, and answers what was kept of it. */
  async #record(outcome: RunOutcome, statements: (outcome: RunOutcome) => Statement[]): Promise<RunOutcome> {
    const { store } = this.#options;
    try {
      await store.write(statements(outcome));
      return outcome;
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "resource_exhausted") throw error;
      // The last room on the disk is for what ended and how; many outputs would use it up.
      const kept = error.reason === "disk_full" ? { ...outcome, output: "", truncated: true } : outcome;
      await store.write(statements(kept), { essential: true });
      return kept;
    }
  }

  async #interrupt(row: RunRow): Promise<void> {
    const { store, now, log } = this.#options;
    const outcome: RunOutcome = {
      status: "INTERRUPTED",
      output: "",
      error: "the process that ran it ended before the run did",
      truncated: false,
      isCutShort: true,
    };
    const results = await store.write(closeRun(row.id, executorOfRow(row), outcome, now()), {
      essential: true,
    });
    if (results[0]?.changes !== 1) return;
    log.info(
      { job: row.job_id, owner: row.owner_uid, run: row.id },
      "a run was left behind and is INTERRUPTED",
    );
  }

  /** Whether somebody still executes it. */
  async #isLive(row: RunRow): Promise<boolean> {
    const { bootId, pid, startTicks } = this.#options.executor;
    const isOurs = row.pid === pid && row.start_ticks === startTicks && row.boot_id === bootId;
    if (!isOurs) return isExecutorAlive(executorOfRow(row));
    return this.#live.has(row.id) || this.#opening > 0;
  }

  #runningRow(key: JobKey): RunRow | undefined {
    const sql = `${selectRuns} WHERE job = ${jobOfKey} AND status = 'RUNNING'`;
    return this.#options.store.get<RunRow>(sql, key.ownerUid, key.id);
  }

  async #sweep(): Promise<void> {
    try {
      await this.recover();
    } catch (error) {
      this.#options.log.error({ err: error }, "runs that were left behind could not be closed");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sweeper?.[Symbol.asyncDispose]();
    this.#watch[Symbol.dispose]();
  }
}
