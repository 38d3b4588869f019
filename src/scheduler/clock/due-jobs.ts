/**
 * Starts due jobs: after their jitter, when a slot is free. Failed runs are retried. A firing during the
 * previous run is skipped and counted.
 */
import type { ScheduleWaitReason } from "../../../gen/svc/v1/values.ts";
import { pause, type Clock } from "../../lib/clock.ts";
import { keyText, type Job, type JobKey } from "../jobs/job.ts";
import type { JobOwners } from "../jobs/job-owners.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import type { Limiter } from "../../lib/limiter.ts";
import type { Run, RunCause } from "../runs/run.ts";
import type { Runner } from "../runs/runner.ts";
import type { SkipCounts } from "../runs/skip-counts.ts";
import type { Log } from "../../lib/log.ts";
import { createHash } from "node:crypto";

export interface DueJobsOptions {
  jobs: Pick<JobRegistry, "get">;
  owners: Pick<JobOwners, "problemOf">;
  runner: Pick<Runner, "start" | "isRunning" | "untilEnded">;
  slots: Pick<Limiter<number>, "acquire" | "reachedLimit">;
  skips: Pick<SkipCounts, "add">;
  clock: Clock;
  jitter: Jitter;
  log: Pick<Log, "error">;
}

/** Delay of the first retry, doubled for each further one up to the maximum. */
const firstRetryMs = 30_000;
const maxRetryMs = 30 * 60_000;
/** Milliseconds until processes of a dead daemon have exited: SIGTERM, 5 s, SIGKILL. */
const remainsMs = 6_000;

/** Why a due job waits. */
export interface JobWait {
  readonly reason: ScheduleWaitReason;
  /** The minute in which it was due, unix milliseconds. */
  readonly scheduledAtMs: number;
  /** When the wait ends, unix milliseconds; absent if it depends on other runs. */
  readonly untilMs?: number;
}

export class DueJobs implements Disposable {
  readonly #options: DueJobsOptions;
  /**
   * Jobs with a pending run, each at most once, which limits the queues; without `wait` the run is being
   * started.
   */
  readonly #pendingRuns = new Map<string, { readonly job: Job; readonly wait?: JobWait }>();
  /** Jobs that wait for a retry; aborting cancels it. */
  readonly #retrying = new Map<string, { wait: JobWait; end: AbortController }>();
  readonly #stopping = new AbortController();

  constructor(options: DueJobsOptions) {
    this.#options = options;
  }

  /** Starts a job that is due in the minute at `scheduledAtMs`. Returns at once. */
  fire(job: Job, scheduledAtMs: number): void {
    const { runner, skips } = this.#options;
    const key = keyText(job);
    if (this.#stopping.signal.aborted) return;
    if (this.#pendingRuns.has(key) || runner.isRunning(job)) {
      skips.add(job, this.waitOf(job) === undefined ? "running" : "busy", scheduledAtMs);
      return;
    }
    // The new run replaces the retry.
    this.#retrying.get(key)?.end.abort();
    this.#startLater(job, scheduledAtMs, this.#options.jitter(job, scheduledAtMs));
  }

  /** Why the job waits; undefined if it does not. */
  waitOf(key: JobKey): JobWait | undefined {
    const name = keyText(key);
    return this.#pendingRuns.get(name)?.wait ?? this.#retrying.get(name)?.wait;
  }

  /**
   * Resumes a start whose jitter an earlier daemon may have waited for. If the time has passed, starts it at
   * once if the job catches up, else not at all. Returns at once.
   */
  resumeStart(job: Job, scheduledAtMs: number): void {
    const { clock, jitter, runner } = this.#options;
    const delayMs = scheduledAtMs + jitter(job, scheduledAtMs) - clock.nowMs();
    const isLost = delayMs <= 0 && job.catchUp !== "latest";
    if (isLost || this.#pendingRuns.has(keyText(job)) || runner.isRunning(job)) return;
    this.#startLater(job, scheduledAtMs, delayMs);
  }

  /**
   * Resumes the retries of a job whose newest scheduled run ended in an earlier daemon; without the usual
   * delay if that daemon's end interrupted the run. Returns at once.
   */
  resumeRetry(job: Job, run: Run): void {
    const { clock, runner } = this.#options;
    const key = keyText(job);
    const isUnderWay = this.#pendingRuns.has(key) || this.#retrying.has(key) || runner.isRunning(job);
    const isEdited = job.updatedAtMs > run.startedAtMs;
    if (isUnderWay || isEdited) return;
    if (isMadeUpFor(job, run)) {
      this.#retryLater(job, run, run.outcome?.status === "INTERRUPTED" ? remainsMs : 0);
      return;
    }
    if (!isWorthRetry(job, run)) return;
    const sinceMs = clock.nowMs() - (run.endedAtMs ?? run.startedAtMs);
    const pauseMs = retryPauseMs(run);
    this.#retryLater(job, run, Math.min(Math.max(0, pauseMs - sinceMs), pauseMs));
  }

  #startLater(job: Job, scheduledAtMs: number, delayMs: number): void {
    const { clock } = this.#options;
    const wait = { reason: "jitter", scheduledAtMs, untilMs: clock.nowMs() + delayMs } as const;
    this.#pendingRuns.set(keyText(job), { job, ...(delayMs > 0 && { wait }) });
    void this.#guard(job, async () => {
      if (delayMs > 0) await pause(clock, delayMs, this.#stopping.signal);
      await this.#attempt(job, { trigger: "schedule", attempt: 1, scheduledAtMs });
    });
  }

  /** Starts a run when a slot is free, and plans the next attempt. */
  async #attempt(job: Job, cause: RunCause): Promise<void> {
    const { slots, runner, skips, jobs, owners, clock } = this.#options;
    const key = keyText(job);
    const scheduledAtMs = cause.scheduledAtMs ?? clock.nowMs();
    if ((await owners.problemOf(job)) !== undefined) {
      this.#pendingRuns.delete(key);
      skips.add(job, "owner", scheduledAtMs);
      return;
    }
    const isFull = slots.reachedLimit(job.ownerUid) !== undefined;
    this.#pendingRuns.set(key, { job, ...(isFull && { wait: { reason: "room", scheduledAtMs } }) });
    const slot = await slots.acquire(job.ownerUid);
    this.#pendingRuns.set(key, { job });
    // The job may have been changed or removed while it waited.
    const current = jobs.get(job);
    if (current === undefined || !isStillDue(current, job, cause) || this.#stopping.signal.aborted) {
      this.#pendingRuns.delete(key);
      slot[Symbol.dispose]();
      return;
    }
    const { started, run } = await runner
      .start(current, cause, slot)
      .finally(() => this.#pendingRuns.delete(key));
    if (!started) {
      skips.add(job, "running", cause.scheduledAtMs ?? run.startedAtMs);
      return;
    }
    const ended = await runner.untilEnded(run.id);
    if (ended !== undefined && isWorthRetry(current, ended)) {
      this.#retryLater(current, ended, retryPauseMs(ended));
    }
  }

  #retryLater(job: Job, { attempt, ...cause }: Run, delayMs: number): void {
    const { clock } = this.#options;
    const key = keyText(job);
    const end = new AbortController();
    const signal = AbortSignal.any([end.signal, this.#stopping.signal]);
    const nowMs = clock.nowMs();
    const scheduledAtMs = cause.scheduledAtMs ?? nowMs;
    const retry = { end, wait: { reason: "retry", scheduledAtMs, untilMs: nowMs + delayMs } } as const;
    this.#retrying.set(key, retry);
    void this.#guard(job, async () => {
      try {
        await pause(clock, delayMs, signal);
      } catch {
        return;
      } finally {
        if (this.#retrying.get(key) === retry) this.#retrying.delete(key);
      }
      await this.#attempt(job, { trigger: cause.trigger, attempt: attempt + 1, scheduledAtMs });
    });
  }

  /** Logs errors, because no caller waits for a due job. */
  async #guard(job: Job, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#pendingRuns.delete(keyText(job));
      if (this.#stopping.signal.aborted) return;
      const details = { err: error, job: job.id, owner: job.ownerUid };
      this.#options.log.error(details, "failed to start a due job");
    }
  }

  /**
   * Drops waiting jobs, and counts their firings as skipped unless they catch up. Running jobs belong to the
   * runner.
   */
  [Symbol.dispose](): void {
    for (const { job, wait } of this.#pendingRuns.values()) {
      const isLost = wait?.reason === "room" && job.catchUp === "none";
      if (isLost) this.#options.skips.add(job, "busy", wait.scheduledAtMs);
    }
    this.#stopping.abort(new Error("the scheduler stops"));
  }
}

/** Whether the current version of a job should still perform the firing or the retry. */
function isStillDue(current: Job, job: Job, { attempt }: RunCause): boolean {
  if (!current.enabled) return false;
  if (attempt > 1) return current.revision === job.revision;
  return current.trigger.text === job.trigger.text && current.timeZone === job.timeZone;
}

/** Delay from the end of a run to the next attempt. */
function retryPauseMs({ attempt }: Run): number {
  return Math.min(firstRetryMs * 2 ** (attempt - 1), maxRetryMs);
}

/**
 * Whether a run that svc interrupted is repeated: if its job retries or catches up, but never a reboot, which
 * itself ends svc.
 */
function isMadeUpFor({ retries, catchUp, action }: Job, { attempt, outcome }: Run): boolean {
  const hasAttemptsLeft = attempt <= Math.max(retries, catchUp === "latest" ? 1 : 0);
  return hasAttemptsLeft && outcome?.isCutShort === true && action.type !== "node_reboot";
}

function isWorthRetry({ retries }: Job, { attempt, outcome }: Run): boolean {
  return attempt <= retries && (outcome?.status === "FAILED" || outcome?.status === "TIMED_OUT");
}

/** Milliseconds from 0 to the job's limit, excluding the limit. */
export type Jitter = (job: Job, scheduledAtMs: number) => number;

/**
 * Pseudo-random but reproducible, so that the next daemon can compute it without a record.
 * @param seed distinguishes hosts with the same job
 */
export function createJitter(seed: string): Jitter {
  return (job, scheduledAtMs) => {
    if (job.jitterSecs === 0) return 0;
    const digest = createHash("sha256")
      .update(`${seed} ${keyText(job)} ${scheduledAtMs}`)
      .digest();
    return (digest.readUIntBE(0, 6) / 2 ** 48) * job.jitterSecs * 1_000;
  };
}
