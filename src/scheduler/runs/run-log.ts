/**
 * The runs of all jobs: recorded before they start, completed with their outcome; the last 50 of each job are
 * retained. A RUNNING row is the lock that prevents concurrent runs of a job in all processes; the executor
 * in it holds the lease.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ScheduleSkipReason } from "../../../gen/svc/v1/values.ts";
import { SvcError } from "../../errors.ts";
import { Ticker } from "../../lib/clock.ts";
import { isExecutorAlive, type Executor } from "../../store/executors.ts";
import { StoreConflict, type Statement, type Store } from "../../store/store.ts";
import { jobNotFound, type JobKey } from "../jobs/job.ts";
import type { Run, RunCause, RunOutcome, StartedRun } from "./run.ts";
import {
  amendRun,
  closeRun,
  executorOfRow,
  insertRun,
  jobOfKey,
  storeOutput,
  maxRetainedRuns,
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
  /** Called for each start and end of a run of this process. */
  onOwn?: RunListener;
}

/** More than the number of retries and manual runs since the last firing. */
const newestRuns = 1_000;
/** Interval of the search for runs of dead processes. */
const sweepIntervalMs = 5_000;
/** Maximum of counts and seconds; a damaged count restarts. */
const maxCount = 2 ** 32 - 1;
/** Maximum attempts to open a run while others close or abandon theirs. */
const maxAttempts = 5;

/** Approximate bytes of outputs and errors per page of runs. */
const maxPageBytes = 1 << 18;

export class RunLog implements AsyncDisposable {
  readonly #options: RunLogOptions;
  readonly #watch: RunWatch;
  /** Runs that this process executes; other rows with this executor are orphaned. */
  readonly #live = new Set<number>();
  /** Number of runs being opened, whose rows may be visible before their IDs are known here. */
  #opening = 0;
  #skips: { statements: Statement[]; written: Promise<void> } | undefined;
  #sweeper: Ticker | undefined;

  constructor(options: RunLogOptions) {
    this.#options = options;
    this.#watch = new RunWatch(options.store);
  }

  /** Closes runs of dead processes, now and periodically. */
  async start(): Promise<void> {
    await this.recover();
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#sweep());
  }

  /**
   * Records a new run durably. If a run of the job is in progress, returns that run; a run of a dead executor
   * is first closed as INTERRUPTED.
   *
   * @throws SvcError `not_found` if the job was removed; errors of the store
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
        if (error.reason === "changes") throw jobNotFound(key.id);
      } finally {
        this.#opening--;
      }
      const row = this.#runningRow(key);
      // Undefined: it has just ended.
      if (row !== undefined && (await this.#isLive(row))) return { started: false, run: runOfRow(row) };
      if (row !== undefined) await this.#interrupt(row);
      else await sleep(attempt);
    }
    throw new SvcError("unavailable", `job "${key.id}" is being started by other processes; try again`);
  }

  /**
   * Records the end of a run of this process durably, and deletes the job's oldest runs. On a full disk,
   * omits the output. Records nothing if the job was removed. Can be retried after a failure.
   */
  async close(run: Run, outcome: RunOutcome): Promise<Run> {
    const endedAtMs = Math.max(this.#options.now(), run.startedAtMs);
    const recorded = await this.#record(outcome, (some) =>
      closeRun({ id: run.id, ownerUid: run.job.ownerUid }, this.#options.executor, some, endedAtMs),
    );
    this.#live.delete(run.id);
    const ended: Run = { ...run, endedAtMs, outcome: recorded };
    this.#options.onOwn?.(ended);
    return ended;
  }

  /** Stores the output so far of a run of this process, in case the process dies. */
  async storeOutput(runId: number, output: string): Promise<void> {
    await this.#options.store.write([storeOutput(runId, this.#options.executor, output)]);
  }

  /** Changes the recorded outcome of an ended run; does nothing if it was removed. */
  async amend(run: Run, outcome: RunOutcome): Promise<Run> {
    return { ...run, outcome: await this.#record(outcome, (some) => amendRun(run.id, some)) };
  }

  /**
   * Counts skipped firings, all of one event loop turn in one transaction; does nothing for a removed job.
   */
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

  /** The runs of a job, newest first. @param limit 1 to 50 @param before only runs with a smaller number */
  list(key: JobKey, limit = maxRetainedRuns, before = Number.MAX_SAFE_INTEGER): Run[] {
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

  /**
   * The newest runs that fit on a page, at least one. Limits the work to milliseconds, because all runs may
   * have 6 MiB.
   */
  page(
    key: JobKey,
    limit = maxRetainedRuns,
    before = Number.MAX_SAFE_INTEGER,
  ): { runs: Run[]; isLast: boolean } {
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

  /** The newest scheduled run of a job, without its output. */
  lastScheduled(key: JobKey): Run | undefined {
    const sql = `${selectRuns} WHERE job = ${jobOfKey} AND trigger = 'schedule' ORDER BY runs.id DESC LIMIT 1`;
    const row = this.#options.store.get<RunRow>(sql, key.ownerUid, key.id);
    return row === undefined ? undefined : runOfRow(row);
  }

  /**
   * Until when the firings of a job are settled, unix milliseconds: the newest scheduled run or skipped
   * firing; 0 for none.
   */
  settledUntil(key: JobKey, nowMs: number): number {
    const skip = this.#options.store.get<{ last: number | null }>(
      // Ignores future times, which a fast clock may have recorded.
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

  /** Whether a firing of a job, unix milliseconds, has a recorded run. */
  hasFired(key: JobKey, scheduledAtMs: number): boolean {
    const sql = `SELECT 1 FROM runs WHERE job = ${jobOfKey} AND scheduled_at = ?`;
    return this.#options.store.get(sql, key.ownerUid, key.id, scheduledAtMs) !== undefined;
  }

  /** Starts and ends of the retained runs of all jobs since an instant, oldest first. */
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
    // A run may end in the same millisecond as it started.
    return news
      .filter(({ atMs }) => atMs >= sinceMs)
      .sort((a, b) => a.atMs - b.atMs || a.runId - b.runId || Number(a.hasEnded) - Number(b.hasEnded));
  }

  /** A run with its output. */
  get(runId: number): Run | undefined {
    const row = this.#options.store.get<RunRow>(`${selectRunsWithOutput} WHERE runs.id = ?`, runId);
    return row === undefined ? undefined : runOfRow(row);
  }

  /** Whether a run is recorded; runs are removed with their job. */
  has(runId: number): boolean {
    return this.#options.store.get("SELECT 1 FROM runs WHERE id = ?", runId) !== undefined;
  }

  /** The current run of a job. */
  runningOf(key: JobKey): Run | undefined {
    const row = this.#runningRow(key);
    return row === undefined ? undefined : runOfRow(row);
  }

  /** Resolves to the ended run, of any process; undefined if it was removed. @throws the signal's reason */
  untilEnded(runId: number, signal: AbortSignal): Promise<Run | undefined> {
    return this.#watch.until(signal, () => {
      const row = this.#options.store.get<{ status: string }>("SELECT status FROM runs WHERE id = ?", runId);
      return row?.status === "RUNNING" ? undefined : { run: row === undefined ? undefined : this.get(runId) };
    });
  }

  /**
   * Calls `listener` at the start and end of each run: at once for this process, within a second for others.
   */
  onChange(listener: RunListener): Disposable {
    return this.#watch.listen(listener);
  }

  /** Closes the runs of dead processes as INTERRUPTED. */
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

  /** Writes the outcome, without the output on a full disk. @returns the stored outcome */
  async #record(outcome: RunOutcome, statements: (outcome: RunOutcome) => Statement[]): Promise<RunOutcome> {
    const { store } = this.#options;
    try {
      await store.write(statements(outcome));
      return outcome;
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "resource_exhausted") throw error;
      // The reserved disk space is only for outcomes; outputs would use it up.
      const storable = error.reason === "disk_full" ? { ...outcome, output: "", truncated: true } : outcome;
      await store.write(statements(storable), { essential: true });
      return storable;
    }
  }

  async #interrupt(row: RunRow): Promise<void> {
    const { store, now, log } = this.#options;
    const outcome: RunOutcome = {
      status: "INTERRUPTED",
      output: "",
      error: "the process that ran it exited before the run finished",
      truncated: false,
      isCutShort: true,
    };
    const closing = closeRun({ id: row.id, ownerUid: row.owner_uid }, executorOfRow(row), outcome, now());
    const results = await store.write(closing, { essential: true });
    if (results[0]?.changes !== 1) return;
    log.info({ job: row.job_id, owner: row.owner_uid, run: row.id }, "closed an orphaned run as INTERRUPTED");
  }

  /** Whether a live process executes it. */
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
      this.#options.log.error({ err: error }, "failed to close orphaned runs");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sweeper?.[Symbol.asyncDispose]();
    this.#watch[Symbol.dispose]();
  }
}
