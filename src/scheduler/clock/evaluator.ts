/**
 * Fires due jobs at the start of every minute of the wall clock, without drift. Timers use another clock and
 * do not notice clock changes, so the wall time is read every 5 s.
 */
import type { PolicyPass } from "../../backups/policies/policy-pass.ts";
import type { Clock } from "../../lib/clock.ts";
import { SlicedWork } from "../../lib/sliced-work.ts";
import type { DueJobs } from "./due-jobs.ts";
import { DueTable } from "./due-table.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import type { Job } from "../jobs/job.ts";
import { maxBack, MinuteHistory, type MinutePlan } from "./minute-history.ts";
import { MissedFiringCounter, type Stretch } from "./missed-firings.ts";
import type { RunLog } from "../runs/run-log.ts";
import type { SkipCounts } from "../runs/skip-counts.ts";
import { nextFiring } from "../../triggers/next-firing.ts";
import { dayMs, minuteMs } from "../../triggers/wall-slice.ts";
import type { Zone, Zones } from "../../triggers/zone.ts";
import type { Log } from "../../lib/log.ts";

export interface EvaluatorOptions {
  jobs: Pick<JobRegistry, "all" | "update">;
  zones: Zones;
  due: Pick<DueJobs, "fire" | "resumeRetry" | "resumeStart">;
  runs: Pick<RunLog, "lastScheduled" | "settledUntil" | "newestFiringMs" | "hasFired">;
  skips: Pick<SkipCounts, "add">;
  backups: Pick<PolicyPass, "run">;
  clock: Clock;
  log: Pick<Log, "info" | "error">;
}

/** Longest time between two reads of the wall clock. */
const maxSleepMs = 5_000;
/** Milliseconds of the event loop per slice. */
const sliceMs = 4;
/** Maximum ranges of missed minutes that wait to be counted; further ranges are dropped. */
const maxCounts = 8;
/** How far back jobs catch up. */
const catchUpMs = 7 * dayMs;

export class Evaluator implements AsyncDisposable {
  readonly #options: EvaluatorOptions;
  readonly #table: DueTable;
  /** Passes of minutes; and longer work, which must not delay them. */
  readonly #passes: SlicedWork;
  readonly #counting: SlicedWork;
  readonly #stopping = new AbortController();
  readonly #chores = new Set<Promise<void>>();
  #history: MinuteHistory;
  /** Until when an earlier daemon with a fast clock may have fired; unix milliseconds. */
  #firedUntilMs = 0;
  #timer: Disposable | undefined;

  constructor(options: EvaluatorOptions) {
    const { clock, log, zones } = options;
    this.#options = options;
    this.#table = new DueTable(zones);
    const slices = {
      budgetMs: sliceMs,
      monotonicMs: () => clock.monotonicMs(),
      onError: (error: unknown) => log.error({ err: error }, "failed to evaluate jobs"),
    };
    this.#passes = new SlicedWork(slices);
    this.#counting = new SlicedWork(slices);
    this.#history = new MinuteHistory(minuteOf(clock.nowMs()), clock.monotonicMs());
  }

  /** Starts with the next minute, and resumes pending starts, retries and catch-ups of an earlier daemon. */
  start(): void {
    const { clock } = this.#options;
    const nowMs = clock.nowMs();
    this.#history = new MinuteHistory(minuteOf(nowMs), clock.monotonicMs());
    this.#passes.add(this.#begin(nowMs));
    this.#sleep();
  }

  *#begin(nowMs: number): Generator<undefined, void> {
    const { jobs } = this.#options;
    yield* jobs.update();
    yield* this.#table.fill(jobs.all());
    const newestMs = this.#options.runs.newestFiringMs();
    if (newestMs <= nowMs + maxBack * minuteMs) this.#firedUntilMs = newestMs;
    this.#counting.add(this.#resume(nowMs));
  }

  #sleep(): void {
    const { clock } = this.#options;
    const nowMs = clock.nowMs();
    const untilNextMs = startOf(nowMs) + minuteMs - nowMs;
    this.#timer = clock.setTimer(Math.max(1, Math.min(untilNextMs, maxSleepMs)), () => this.#wake());
  }

  #wake(): void {
    const { clock } = this.#options;
    // The clock is not read during a pass; minutes missed by then are run by the next one.
    if (!this.#passes.isBusy) {
      const plan = this.#history.advance(minuteOf(clock.nowMs()), clock.monotonicMs());
      if (plan.run.length > 0 || plan.late !== undefined) this.#passes.add(this.#evaluate(plan));
    }
    this.#sleep();
  }

  *#evaluate({ run, late }: MinutePlan): Generator<undefined, void> {
    const { jobs } = this.#options;
    yield* jobs.update();
    yield* this.#table.fill(jobs.all());
    for (const minute of run) {
      const atMs = minute * minuteMs;
      this.#backUp(atMs);
      yield* this.#table.pass(atMs, (job) => this.#fire(job, atMs));
    }
    if (late !== undefined && this.#counting.size < maxCounts) {
      const [fromMs, toMs] = [late.from * minuteMs, late.to * minuteMs];
      const minutes = late.to - late.from + 1;
      this.#options.log.info(
        { minutes },
        "the clock jumped or the host was suspended; skipping the firings of the missed minutes",
      );
      this.#counting.add(
        this.#skipLate(fromMs, { toMs, hasRun: (minute) => this.#history.hasRun(minute) }, run),
      );
    }
  }

  /** Never fires twice, even if the clock was set back between two daemons. */
  #fire(job: Job, atMs: number): void {
    const { due, runs } = this.#options;
    if (atMs > this.#firedUntilMs || !runs.hasFired(job, atMs)) due.fire(job, atMs);
  }

  /** Minutes that the running daemon missed: all are skipped, except the newest for jobs that catch up. */
  *#skipLate(fromMs: number, stretch: Stretch, run: readonly number[]): Generator<undefined, void> {
    const { skips, due } = this.#options;
    const untilMs = (run.at(-1) ?? 0) * minuteMs;
    const counter = new MissedFiringCounter(stretch);
    for (const [job, zone] of this.#enabledJobs()) {
      const { count, lastMs, beforeMs } = yield* counter.count(job, zone, fromMs - minuteMs);
      const isCaughtUp =
        count > 0 &&
        job.catchUp === "latest" &&
        lastMs >= untilMs - catchUpMs &&
        !firesUntil(job, zone, lastMs, untilMs);
      if (isCaughtUp) due.fire(job, lastMs);
      const skipped = isCaughtUp ? count - 1 : count;
      // Not the firing that runs: skipped ones are settled, and count as run for the next daemon.
      if (skipped > 0) skips.add(job, "late", isCaughtUp ? beforeMs : lastMs, skipped);
      yield;
    }
  }

  /**
   * Resumes the work of an earlier daemon. Progress is derived from recorded runs and skips: a separate mark
   * could be older than a run, which each new daemon would then repeat, or newer, which would lose a run.
   */
  *#resume(nowMs: number): Generator<undefined, void> {
    const { skips, due } = this.#options;
    const missed = new MissedFiringCounter({ toMs: startOf(nowMs), hasRun: () => false });
    for (const [job, zone] of this.#enabledJobs()) {
      if (job.catchUp === "latest") {
        const afterMs = this.#settledUntil(job, nowMs);
        const { count, lastMs, beforeMs } = yield* missed.count(job, zone, afterMs);
        if (count > 1) skips.add(job, "down", beforeMs, count - 1);
        if (count > 0) due.resumeStart(job, lastMs);
      } else if (job.jitterSecs > 0) this.#resumeStarts(job, zone, nowMs);
      if (job.catchUp === "latest" || job.retries > 0) this.#resumeRetry(job, zone, nowMs);
      yield;
    }
  }

  #settledUntil(job: Job, nowMs: number): number {
    return Math.max(this.#options.runs.settledUntil(job, nowMs), startOf(nowMs - catchUpMs) - minuteMs);
  }

  /** Firings whose jitter an earlier daemon may have waited for, newest first. */
  #resumeStarts(job: Job, zone: Zone, nowMs: number): void {
    const lastMs = this.#options.runs.lastScheduled(job)?.scheduledAtMs ?? 0;
    const fromMs = Math.max(nowMs - job.jitterSecs * 1_000, lastMs, job.updatedAtMs);
    const firings = [...firingsBetween(job, zone, fromMs, nowMs)];
    for (const atMs of firings.reverse()) this.#options.due.resumeStart(job, atMs);
  }

  /** Pending retries and interrupted runs; not if the job should have fired again since. */
  #resumeRetry(job: Job, zone: Zone, nowMs: number): void {
    const run = this.#options.runs.lastScheduled(job);
    if (run === undefined || run.startedAtMs < nowMs - catchUpMs) return;
    if (firesUntil(job, zone, run.scheduledAtMs ?? nowMs, nowMs)) return;
    this.#options.due.resumeRetry(job, run);
  }

  *#enabledJobs(): Iterable<[Job, Zone]> {
    for (const job of this.#table.jobs) {
      const zone = job.enabled ? this.#options.zones.named(job.timeZone) : undefined;
      if (zone !== undefined) yield [job, zone];
    }
  }

  #backUp(atMs: number): void {
    const { backups, log } = this.#options;
    this.#trackChore(
      backups.run(atMs, this.#stopping.signal).then(
        (failures) => {
          for (const { app, error } of failures) log.error({ err: error, app }, "a policy backup failed");
        },
        (error: unknown) => {
          if (!this.#stopping.signal.aborted)
            log.error({ err: error }, "failed to run the policy backups of a minute");
        },
      ),
    );
  }

  #trackChore(work: Promise<void>): void {
    const chore = work.finally(() => this.#chores.delete(chore));
    this.#chores.add(chore);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#passes[Symbol.dispose]();
    this.#counting[Symbol.dispose]();
    this.#stopping.abort(new Error("the scheduler stops"));
    await Promise.allSettled(this.#chores);
  }
}

/** Minutes since 1970. */
function minuteOf(unixMs: number): number {
  return Math.floor(unixMs / minuteMs);
}

function startOf(unixMs: number): number {
  return minuteOf(unixMs) * minuteMs;
}

/** Whether the job fires after `afterMs` and until `untilMs`. */
function firesUntil(job: Job, zone: Zone, afterMs: number, untilMs: number): boolean {
  return firingsBetween(job, zone, afterMs, untilMs).next().done !== true;
}

/** The firings after `afterMs` and until `untilMs`, unix milliseconds. */
function* firingsBetween(
  { trigger }: Job,
  zone: Zone,
  afterMs: number,
  untilMs: number,
): Generator<number, void> {
  for (let atMs = afterMs; ;) {
    const firing = nextFiring(trigger, zone, atMs);
    if (firing === undefined || firing.unixMs > untilMs) return;
    yield (atMs = firing.unixMs);
  }
}
