/** Executes the runs of jobs: opened before anything is done, closed with what came of it, whatever that was. */
import { SvcError } from "../../errors.ts";
import { pause, systemClock, type Clock } from "../../lib/clock.ts";
import type { ActionResult, Actions } from "../actions/action.ts";
import { CappedOutput } from "./capped-output.ts";
import type { JobOwners } from "../jobs/job-owners.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import type { Job, JobKey } from "../jobs/job.ts";
import { keyText } from "../jobs/job-key.ts";
import { KeptOutput } from "./kept-output.ts";
import { LiveOutput, nothing } from "./live-output.ts";
import type { RunLog } from "./run-log.ts";
import type { PlaceBounds, UserPlaces } from "../../lib/user-places.ts";
import { RunStopped, outcomeOf, runStops, stopOf, type ActionEnd, type RunStop } from "./run-outcome.ts";
import type { Run, RunCause, RunOutcome, StartedRun } from "./run.ts";
import type { Log } from "../../lib/log.ts";

export interface RunnerOptions {
  jobs: Pick<JobRegistry, "get">;
  owners: Pick<JobOwners, "problemOf">;
  runs: Pick<RunLog, "open" | "close" | "amend" | "has" | "keepOutput">;
  actions: Actions;
  room: Pick<UserPlaces, "take" | "whyFull">;
  clock: Clock;
  /** Whether the owner of a job has the root context. */
  isRoot: (ownerUid: number) => boolean;
  log: Pick<Log, "error">;
}

/**
 * How many runs go at once, scheduled ones and those started by hand. Every due job starts independently of the others
 * (S 1.4.3), so the bounds are in the thousands, where the host itself comes to its end.
 */
export const runBounds: PlaceBounds = { root: 2_000, users: 3_000, perUser: 1_000 };
/** How long a stop waits for the runs to end: SIGTERM, 5 s, SIGKILL, and the record. */
const stopMs = 15_000;
/** Between attempts to record how a run ended: from the first, doubling, to the second. */
const firstRecordRetryMs = 1_000;
const maxRecordRetryMs = 60_000;

/** A run that this process executes. */
interface RunningJob {
  readonly job: Job;
  readonly run: Run;
  readonly controller: AbortController;
  readonly live: LiveOutput;
  readonly ended: Promise<Run>;
}

/** A run whose job is removed is ended by it, whoever removes the job. */
export class Runner implements AsyncDisposable {
  readonly #options: RunnerOptions;
  readonly #running = new Map<number, RunningJob>();
  readonly #byJob = new Map<string, RunningJob>();
  /** Runs that are recorded and have something left to do, by job. */
  readonly #finishing = new Map<string, Run>();
  /** Runs that are being opened: a stop waits for them too. */
  readonly #opening = new Set<Promise<StartedRun>>();
  readonly #stopping = new AbortController();

  constructor(options: RunnerOptions) {
    this.#options = options;
  }

  /**
   * Opens a run and lets it go on by itself; resolves as soon as the run is recorded. While one goes, in this process or
   * another, nothing is started and that one is the answer.
   *
   * @param place room that was waited for, which is the run's from now on; without it there must be some
   * @throws SvcError `not_found` when the job is gone; `failed_precondition` when its owner is; `too_many` without room; what the store throws, and then nothing
   *   was started
   */
  async start(job: Job, cause: RunCause, place?: Disposable): Promise<StartedRun> {
    using room = new DisposableStack();
    if (place !== undefined) room.use(place);
    const problem = await this.#options.owners.problemOf(job);
    if (problem !== undefined)
      throw new SvcError("not_possible", `schedule "${job.id}" does not run: ${problem}`);
    if (this.#stopping.signal.aborted)
      throw new SvcError("unavailable", "svc is stopping and starts no runs");
    const finishing = this.finishing(job);
    if (finishing !== undefined) return { started: false, run: finishing };
    if (place === undefined) room.use(this.#takePlace(job.ownerUid));
    const opening = this.#options.runs.open(job, cause);
    this.#opening.add(opening);
    try {
      const started = await opening;
      if (started.started) this.#begin(job, started.run, room.move());
      return started;
    } finally {
      this.#opening.delete(opening);
    }
  }

  /**
   * The output of a run as it comes, in write order, until it has ended; pieces may split characters. It listens from the
   * call on, not from the first `next`, so whoever calls in the turn in which `start` resolved misses nothing. Ends at
   * once, without output, for a run that this process does not execute. A reader that stays behind further than the
   * runner's bound misses output; it never holds the run up.
   *
   * @param signal ends the listening, never the run
   */
  follow(runId: number, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.#running.get(runId)?.live.follow(signal) ?? nothing;
  }

  /**
   * Ends a run's processes (SIGTERM to its group, SIGKILL 5 s later) and resolves with the run as it ended: CANCELED, or
   * as it ended by itself just before.
   *
   * @param why default: that somebody wanted it
   * @throws SvcError `failed_precondition` when the run does not go any more, or is executed by another process
   */
  async cancel(runId: number, why: RunStop = runStops.canceled): Promise<Run> {
    const running = this.#running.get(runId);
    if (running === undefined) {
      throw new SvcError("not_possible", `run ${runId} is not running, or another process executes it`);
    }
    stop(running, why);
    return running.ended;
  }

  /**
   * A run that is recorded as ended and has something left to do, which `cancel` can still prevent: a reboot within its
   * delay. Until then the job is not started again.
   */
  finishing(key: JobKey): Run | undefined {
    return this.#finishing.get(keyText(key));
  }

  /** Whether a run of the job goes in this process. */
  isRunning(key: JobKey): boolean {
    return this.#byJob.has(keyText(key));
  }

  /** The run as it ended, once it has; undefined when this process does not execute it. */
  async ended(runId: number): Promise<Run | undefined> {
    return this.#running.get(runId)?.ended;
  }

  /** Ends the runs of jobs that are gone, also where another job has come under the same key. */
  endOrphans(): void {
    const { jobs, runs } = this.#options;
    for (const running of this.#running.values()) {
      const current = jobs.get(running.job);
      // One that was written since is the same job only if the run is still on record: that goes with its job.
      const isThere =
        current !== undefined && (current.revision === running.job.revision || runs.has(running.run.id));
      if (!isThere) stop(running, runStops.removed);
    }
  }

  /** @throws SvcError `too_many` */
  #takePlace(uid: number): Disposable {
    const { room } = this.#options;
    const place = room.take(uid);
    if (place === undefined) throw new SvcError("too_many", `${room.whyFull(uid)}; try again later`);
    return place;
  }

  #begin(job: Job, run: Run, room: Disposable): void {
    const ended = Promise.withResolvers<Run>();
    const controller = new AbortController();
    const running = { job, run, controller, live: new LiveOutput(), ended: ended.promise };
    const key = keyText(job);
    // That of a job which was removed and added again, or one that is being let go of this very moment.
    const before = this.#byJob.get(key);
    this.#running.set(run.id, running);
    this.#byJob.set(key, running);
    if (this.#stopping.signal.aborted) stop(running, runStops.stopping);
    // Not in this turn: whoever started it may want to follow it.
    setImmediate(() => {
      void this.#execute(running, before).then((result) => {
        this.#running.delete(run.id);
        if (this.#byJob.get(key) === running) this.#byJob.delete(key);
        room[Symbol.dispose]();
        running.live.end();
        ended.resolve(result);
      });
    });
  }

  /**
   * From the action to the record; never rejects.
   * @param before ends first: what one key stands for never goes twice at once
   */
  async #execute(running: RunningJob, before: RunningJob | undefined): Promise<Run> {
    const { run, live, controller } = running;
    await before?.ended;
    const output = new CappedOutput();
    const { clock, runs } = this.#options;
    using kept = new KeptOutput(clock, () => runs.keepOutput(run.id, output.read().text));
    const end = await this.#act(running, (piece) => {
      const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
      output.push(bytes);
      kept.change();
      live.push(bytes);
    });
    const outcome = outcomeOf(end, output.read(), stopOf(controller.signal));
    const recorded = await this.#record(run, outcome, () => this.#options.runs.close(run, outcome));
    const afterwards = "result" in end ? end.result.afterwards : undefined;
    if (afterwards === undefined || outcome.status !== "SUCCEEDED") return recorded;
    return await this.#finish(running, recorded, afterwards);
  }

  async #act(running: RunningJob, write: (piece: Uint8Array | string) => void): Promise<ActionEnd> {
    const { actions, clock, isRoot } = this.#options;
    const { job, controller } = running;
    const { signal } = controller;
    using _timeout = clock.setTimer(job.timeoutSecs * 1_000, () =>
      stop(running, runStops.timedOut(job.timeoutSecs)),
    );
    try {
      signal.throwIfAborted();
      const work = { isRoot: isRoot(job.ownerUid), signal, write };
      return { result: await actions[job.action.type](job, work) };
    } catch (thrown) {
      this.#logDefect(running, thrown);
      return { thrown };
    }
  }

  /** Does what was to be done after the record, and says so there when it could not be. */
  async #finish(
    running: RunningJob,
    recorded: Run,
    afterwards: NonNullable<ActionResult["afterwards"]>,
  ): Promise<Run> {
    const { signal } = running.controller;
    const key = keyText(running.job);
    this.#finishing.set(key, recorded);
    try {
      await afterwards(signal);
      return recorded;
    } catch (thrown) {
      this.#logDefect(running, thrown);
      const { output = "", truncated = false } = recorded.outcome ?? {};
      const outcome = outcomeOf({ thrown }, { text: output, isTruncated: truncated }, stopOf(signal));
      return await this.#record(recorded, outcome, () => this.#options.runs.amend(recorded, outcome));
    } finally {
      this.#finishing.delete(key);
    }
  }

  /** Tries until it is recorded: while it is not, the job cannot run again. */
  async #record(run: Run, outcome: RunOutcome, write: () => Promise<Run>): Promise<Run> {
    const { clock, log } = this.#options;
    const { id, job } = run;
    for (let delayMs = firstRecordRetryMs; ; delayMs = Math.min(delayMs * 2, maxRecordRetryMs)) {
      try {
        return await write();
      } catch (error) {
        const details = { err: error, run: id, job: job.id, owner: job.ownerUid, status: outcome.status };
        log.error(details, "the end of a run could not be recorded; trying again");
      }
      const ended = { ...run, endedAtMs: clock.nowMs(), outcome };
      // Whoever starts next calls it INTERRUPTED.
      if (this.#stopping.signal.aborted) return ended;
      try {
        await pause(clock, delayMs, this.#stopping.signal);
      } catch {
        // One last attempt.
      }
    }
  }

  #logDefect({ run }: RunningJob, thrown: unknown): void {
    if (thrown instanceof SvcError || thrown instanceof RunStopped) return;
    const { id, job } = run;
    this.#options.log.error(
      { err: thrown, run: id, job: job.id, owner: job.ownerUid },
      "a run failed by a defect",
    );
  }

  /** Ends what runs, and waits for it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort(new RunStopped(runStops.stopping));
    await Promise.allSettled(this.#opening);
    const all = [...this.#running.values()];
    if (all.length === 0) return;
    for (const running of all) stop(running, runStops.stopping);
    const tooLate = Promise.withResolvers<undefined>();
    // By the host's clock: a stop must end whatever time a test plays.
    using _deadline = systemClock().setTimer(stopMs, () => tooLate.resolve(undefined));
    await Promise.race([Promise.all(all.map(({ ended }) => ended)), tooLate.promise]);
  }
}

function stop({ controller }: RunningJob, why: RunStop): void {
  // The first reason is the one that counts.
  if (!controller.signal.aborted) controller.abort(new RunStopped(why));
}
