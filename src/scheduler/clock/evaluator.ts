/**
 * Looks at the clock and fires what is due: once in every minute that the wall clock shows, at its start, without drift.
 * Timers run by another clock and notice no step, so the wall time is read every 5 s (S 1.4.1, D21).
 */
import type { PolicyPass } from "../../backups/policy-pass.ts";
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
import { nextFiring } from "../trigger/next-firing.ts";
import { dayMs, minuteMs } from "../trigger/wall-slice.ts";
import type { Zone, Zones } from "../trigger/zone.ts";
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

/** The longest time between two looks at the wall clock. */
const maxSleepMs = 5_000;
/** Of the event loop, at a time. */
const sliceMs = 4;
/** Stretches of missed minutes that wait to be counted; of a clock that jumps more often, the others are not. */
const maxCounts = 8;
/** How far back anything is made up for. */
const catchUpMs = 7 * dayMs;

export class Evaluator implements AsyncDisposable {
  readonly #options: EvaluatorOptions;
  readonly #table: DueTable;
  /** The minutes' passes; and what takes longer, which they must not wait for. */
  readonly #passes: SlicedWork;
  readonly #counting: SlicedWork;
  readonly #stopping = new AbortController();
  readonly #chores = new Set<Promise<void>>();
  #history: MinuteHistory;
  /** Up to when a daemon before may have fired, its clock having been ahead of today's; unix milliseconds. */
  #firedUntilMs = 0;
  #timer: Disposable | undefined;

  constructor(options: EvaluatorOptions) {
    const { clock, log, zones } = options;
    this.#options = options;
    this.#table = new DueTable(zones);
    const slices = {
      budgetMs: sliceMs,
      monotonicMs: () => clock.monotonicMs(),
      onError: (error: unknown) => log.error({ err: error }, "jobs could not be evaluated"),
    };
    this.#passes = new SlicedWork(slices);
    this.#counting = new SlicedWork(slices);
    this.#history = new MinuteHistory(minuteOf(clock.nowMs()), clock.monotonicMs());
  }

  /** Begins with the next minute; of the time before, with what was still to come and what jobs want to catch up on. */
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
    // While one pass goes on the clock is not asked: what is missed by then is run by the next look.
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
        "the clock or the host left out minutes; their firings are skipped",
      );
      this.#counting.add(
        this.#skipLate(fromMs, { toMs, hasRun: (minute) => this.#history.hasRun(minute) }, run),
      );
    }
  }

  /** None twice, also where the clock was set back between two daemons. */
  #fire(job: Job, atMs: number): void {
    const { due, runs } = this.#options;
    if (atMs > this.#firedUntilMs || !runs.hasFired(job, atMs)) due.fire(job, atMs);
  }

  /** Minutes that the daemon was there for and did not get: all are skipped, but the newest where a job wants to catch up. */
  *#skipLate(fromMs: number, stretch: Stretch, run: readonly number[]): Generator<undefined, void> {
    const { skips, due } = this.#options;
    const untilMs = (run.at(-1) ?? 0) * minuteMs;
    const counter = new MissedFiringCounter(stretch);
    for (const [job, zone] of this.#enabledJobs()) {
      const { count, lastMs, beforeMs } = yield* counter.count(job, zone, fromMs - minuteMs);
      const isWanted =
        count > 0 &&
        job.catchUp === "latest" &&
        lastMs >= untilMs - catchUpMs &&
        !firesUntil(job, zone, lastMs, untilMs);
      if (isWanted) due.fire(job, lastMs);
      const skipped = isWanted ? count - 1 : count;
      // Not that of the one that runs: what was skipped is settled, and counts as run for the next daemon.
      if (skipped > 0) skips.add(job, "late", isWanted ? beforeMs : lastMs, skipped);
      yield;
    }
  }

  /**
   * What the daemon before has left. Only the runs and skips on record say how far each job came: a mark of its own could
   * be older than a run, which would then be made again by every daemon that starts, or newer, which would lose one.
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

  /** Firings for whose jitter the daemon before may still have waited, the newest first. */
  #resumeStarts(job: Job, zone: Zone, nowMs: number): void {
    const lastMs = this.#options.runs.lastScheduled(job)?.scheduledAtMs ?? 0;
    const fromMs = Math.max(nowMs - job.jitterSecs * 1_000, lastMs, job.updatedAtMs);
    const firings = [...firingsBetween(job, zone, fromMs, nowMs)];
    for (const atMs of firings.reverse()) this.#options.due.resumeStart(job, atMs);
  }

  /** What is still to be tried again, or was cut short; not where the job was to fire anew since. */
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
    this.#chore(
      backups.run(atMs, this.#stopping.signal).then(
        (failures) => {
          for (const { app, error } of failures) log.error({ err: error, app }, "a policy backup failed");
        },
        (error: unknown) => {
          if (!this.#stopping.signal.aborted) log.error({ err: error }, "the pass of policy backups failed");
        },
      ),
    );
  }

  #chore(work: Promise<void>): void {
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

/** Whether the job fires after one instant and up to the other. */
function firesUntil(job: Job, zone: Zone, afterMs: number, untilMs: number): boolean {
  return firingsBetween(job, zone, afterMs, untilMs).next().done !== true;
}

/** When the job fires after one instant and up to the other, unix milliseconds. */
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
