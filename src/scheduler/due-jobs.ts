/**
 * What becomes of a job that is due: it waits for its jitter and for a slot, is started, and is tried again when it
 * failed. A firing that meets the run before is skipped and counted (S 1.4.3, 1.4.4).
 */
import { SvcError } from "../errors.ts";
import { pause, type Clock } from "../lib/clock.ts";
import type { Jitter } from "./jitter.ts";
import { keyText } from "./job-key.ts";
import type { JobRegistry } from "./job-registry.ts";
import type { Job } from "./job.ts";
import type { RunSlots } from "./run-slots.ts";
import type { Run, RunCause, StartedRun } from "./run.ts";
import type { Runner } from "./runner.ts";
import type { SkipCounts } from "./skip-counts.ts";

export interface DueJobsOptions {
  jobs: Pick<JobRegistry, "get">;
  runner: Pick<Runner, "start" | "isGoing" | "ended">;
  slots: RunSlots;
  skips: Pick<SkipCounts, "add">;
  clock: Clock;
  jitter: Jitter;
  log: { error(details: object, message: string): void };
}

/** Before the first retry; each later one waits twice as long as the one before, up to the second. */
const firstRetryMs = 30_000;
const maxRetryMs = 30 * 60_000;
/** For the processes of a daemon that died to be gone: SIGTERM, 5 s, SIGKILL. */
const remainsMs = 6_000;
/** Until the next look for room. */
const roomPauseMs = 1_000;

export class DueJobs implements Disposable {
  readonly #options: DueJobsOptions;
  /** Jobs that wait for their jitter or a slot, each at most once: the bound of both queues. */
  readonly #waiting = new Set<string>();
  /** Jobs that wait for another attempt; aborting ends that. */
  readonly #retrying = new Map<string, AbortController>();
  readonly #stopping = new AbortController();

  constructor(options: DueJobsOptions) {
    this.#options = options;
  }

  /** Lets a job run that is due in the minute at `scheduledAtMs`. Returns at once. */
  fire(job: Job, scheduledAtMs: number): void {
    const { runner, skips } = this.#options;
    const key = keyText(job);
    if (this.#stopping.signal.aborted) return;
    if (this.#waiting.has(key) || runner.isGoing(job)) {
      skips.add(job, "running", scheduledAtMs);
      return;
    }
    // It is tried anew anyway.
    this.#retrying.get(key)?.abort();
    this.#startLater(job, scheduledAtMs, this.#options.jitter(job, scheduledAtMs));
  }

  /**
   * Lets a job run when the jitter of a firing is over that another daemon may have waited for; if it is over already, at
   * once where the job wants to catch up, and never else. Returns at once.
   */
  resumeStart(job: Job, scheduledAtMs: number): void {
    const { clock, jitter, runner } = this.#options;
    const delayMs = scheduledAtMs + jitter(job, scheduledAtMs) - clock.nowMs();
    const isLost = delayMs <= 0 && job.catchUp !== "latest";
    if (isLost || this.#waiting.has(keyText(job)) || runner.isGoing(job)) return;
    this.#startLater(job, scheduledAtMs, delayMs);
  }

  /**
   * Lets a job be tried again whose newest scheduled run ended in another daemon, if that was to be; without the usual
   * pause where it was that daemon's end that cut it short. Returns at once.
   */
  resumeRetry(job: Job, run: Run): void {
    const { clock, runner } = this.#options;
    const key = keyText(job);
    const isUnderWay = this.#waiting.has(key) || this.#retrying.has(key) || runner.isGoing(job);
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
    const key = keyText(job);
    this.#waiting.add(key);
    void this.#guard(job, async () => {
      try {
        if (delayMs > 0) await pause(this.#options.clock, delayMs, this.#stopping.signal);
        await this.#attempt(job, { trigger: "schedule", attempt: 1, scheduledAtMs });
      } finally {
        this.#waiting.delete(key);
      }
    });
  }

  /** Starts a run in a slot, keeps that until the run has ended, and sees to the next attempt. */
  async #attempt(job: Job, cause: RunCause): Promise<void> {
    const { slots, runner, skips, jobs } = this.#options;
    const slot = await slots.take(job.ownerUid);
    let run: Run | undefined;
    try {
      let current: Job | undefined;
      let started: StartedRun | undefined;
      while (started === undefined) {
        // What was waited for may have been edited or removed meanwhile.
        current = jobs.get(job);
        if (current === undefined || !isWanted(current, job, cause) || this.#stopping.signal.aborted) return;
        started = await this.#tryStart(current, cause);
      }
      this.#waiting.delete(keyText(job));
      if (!started.started) {
        skips.add(job, "running", cause.scheduledAtMs ?? started.run.startedAtMs);
        return;
      }
      run = await runner.ended(started.run.id);
      if (current !== undefined && run !== undefined && isWorthRetry(current, run)) {
        this.#retryLater(current, run, retryPauseMs(run));
      }
    } finally {
      slot[Symbol.dispose]();
    }
  }

  /** Undefined when runs that were started by hand leave no room; a moment later it may be tried again. */
  async #tryStart(job: Job, cause: RunCause): Promise<StartedRun | undefined> {
    const { runner, clock } = this.#options;
    try {
      return await runner.start(job, cause);
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "too_many") throw error;
      await pause(clock, roomPauseMs, this.#stopping.signal);
      return undefined;
    }
  }

  #retryLater(job: Job, { attempt, ...cause }: Run, delayMs: number): void {
    const { clock } = this.#options;
    const key = keyText(job);
    const retry = new AbortController();
    const signal = AbortSignal.any([retry.signal, this.#stopping.signal]);
    this.#retrying.set(key, retry);
    void this.#guard(job, async () => {
      try {
        await pause(clock, delayMs, signal);
      } catch {
        return;
      } finally {
        if (this.#retrying.get(key) === retry) this.#retrying.delete(key);
      }
      const { trigger, scheduledAtMs } = cause;
      const next = { trigger, attempt: attempt + 1, ...(scheduledAtMs !== undefined && { scheduledAtMs }) };
      await this.#attempt(job, next);
    });
  }

  /** Nobody waits for what happens to a due job. */
  async #guard(job: Job, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      const details = { err: error, job: job.id, owner: job.ownerUid };
      this.#options.log.error(details, "a job that was due could not be started");
    }
  }

  /** Forgets those who wait; what runs is the runner's. */
  [Symbol.dispose](): void {
    this.#stopping.abort(new Error("the scheduler stops"));
  }
}

/** Whether a job as it is now is still to do what it was due for, or was to be tried again for. */
function isWanted(current: Job, job: Job, { attempt }: RunCause): boolean {
  if (!current.enabled) return false;
  if (attempt > 1) return current.revision === job.revision;
  return current.trigger.text === job.trigger.text && current.timeZone === job.timeZone;
}

/** From the end of a run to the next attempt. */
function retryPauseMs({ attempt }: Run): number {
  return Math.min(firstRetryMs * 2 ** (attempt - 1), maxRetryMs);
}

/** A run that svc itself ended is made up for where its job wants runs to come about; never a reboot, which ends svc. */
function isMadeUpFor({ retries, catchUp, action }: Job, { attempt, outcome }: Run): boolean {
  const isWanted = attempt <= Math.max(retries, catchUp === "latest" ? 1 : 0);
  return isWanted && outcome?.isCutShort === true && action.type !== "node_reboot";
}

function isWorthRetry({ retries }: Job, { attempt, outcome }: Run): boolean {
  return attempt <= retries && (outcome?.status === "FAILED" || outcome?.status === "TIMED_OUT");
}
