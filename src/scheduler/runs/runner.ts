/** Executes runs of jobs. Each is recorded before it starts, and completed with its outcome in any case. */
import { SvcError } from "../../errors.ts";
import { pause, systemClock, type Clock } from "../../lib/clock.ts";
import { onShareOf, rootShare } from "../../lib/share-owner.ts";
import type { ActionResult, Actions } from "../actions/action.ts";
import { CappedOutput } from "./capped-output.ts";
import type { JobOwners } from "../jobs/job-owners.ts";
import type { JobRegistry } from "../jobs/job-registry.ts";
import { type Job, type JobKey, keyText } from "../jobs/job.ts";
import { OutputWriter } from "./output-writer.ts";
import { LiveOutput, nothing } from "./live-output.ts";
import type { RunLog } from "./run-log.ts";
import { Limiter } from "../../lib/limiter.ts";
import { RunStopped, outcomeOf, runStops, stopOf, type ActionEnd, type RunStop } from "./run-outcome.ts";
import type { Run, RunCause, RunOutcome, StartedRun } from "./run.ts";
import type { Log } from "../../lib/log.ts";

export interface RunnerOptions {
  jobs: Pick<JobRegistry, "get">;
  owners: Pick<JobOwners, "problemOf">;
  runs: Pick<RunLog, "open" | "close" | "amend" | "has" | "storeOutput">;
  actions: Actions;
  slots: Pick<Limiter<number>, "tryAcquire" | "reachedLimit" | "running" | "runningOf">;
  clock: Clock;
  /** Whether the owner of a job is root. */
  isRoot: (ownerUid: number) => boolean;
  log: Pick<Log, "error">;
}

/**
 * Maximum concurrent runs, scheduled and manual. Due jobs start independently, so the limits are in the
 * thousands, near the capacity of a host.
 */
export const runBounds = { total: 5_000, reserved: 2_000, perKey: 1_000, guaranteed: 10 };
/** Concurrent writes of outputs of running runs. A thousand runs could otherwise write 64 MiB per second to the store. */
const outputWrites = { total: 144, reserved: 128, perKey: 1 };
/** Milliseconds that a stop waits for runs: SIGTERM, 5 s, SIGKILL, and the record. */
const stopMs = 15_000;
/** Delays between attempts to record an outcome: doubling from the first to the second. */
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

/** Also stops runs whose job was removed by any process. */
export class Runner implements AsyncDisposable {
  readonly #options: RunnerOptions;
  readonly #running = new Map<number, RunningJob>();
  readonly #byJob = new Map<string, RunningJob>();
  /** Recorded runs with remaining work, by job. */
  readonly #finishing = new Map<string, Run>();
  /** Runs that are being opened; a stop also waits for these. */
  readonly #opening = new Set<Promise<StartedRun>>();
  readonly #stopping = new AbortController();
  readonly #outputWrites: Limiter<number>;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#outputWrites = new Limiter({ ...outputWrites, isReserved: options.isRoot });
  }

  /**
   * Starts a run, and resolves as soon as it is recorded. If a run is in progress in any process, resolves to
   * that run and starts nothing.
   *
   * @param slot an acquired slot, which the run takes over; without it, a slot must be free
   * @throws SvcError `not_found` if the job was removed; `failed_precondition` if its owner no longer exists;
   * `too_many` without a free slot; errors of the store. Nothing was started then
   */
  async start(job: Job, cause: RunCause, slot?: Disposable): Promise<StartedRun> {
    using resources = new DisposableStack();
    if (slot !== undefined) resources.use(slot);
    const problem = await this.#options.owners.problemOf(job);
    if (problem !== undefined) throw new SvcError("not_possible", `job "${job.id}" does not run: ${problem}`);
    if (this.#stopping.signal.aborted)
      throw new SvcError("unavailable", "svc is stopping and starts no runs");
    const finishing = this.finishing(job);
    if (finishing !== undefined) return { started: false, run: finishing };
    if (slot === undefined) resources.use(this.#takeSlot(job.ownerUid));
    const opening = this.#options.runs.open(job, cause);
    this.#opening.add(opening);
    try {
      const started = await opening;
      if (started.started) this.#begin(job, started.run, resources.move());
      return started;
    } finally {
      this.#opening.delete(opening);
    }
  }

  /**
   * Yields the live output of a run in order until it ends; pieces may split characters. Listens from the
   * call on, not from the first `next`, so a call in the turn in which `start` resolved misses nothing. Ends
   * at once for a run of another process. A slow reader misses output; it never delays the run.
   *
   * @param signal ends the stream, never the run
   */
  follow(runId: number, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.#running.get(runId)?.live.follow(signal) ?? nothing;
  }

  /**
   * Stops a run's processes (SIGTERM to its group, SIGKILL 5 s later), and resolves to the ended run:
   * CANCELED, or its own outcome if it ended just before.
   *
   * @param why default: canceled by a user
   * @throws SvcError `failed_precondition` if the run has ended, or another process executes it
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
   * A run that is recorded as ended but has remaining work, such as a delayed reboot, which `cancel` can
   * still prevent. The job is not started again before.
   */
  finishing(key: JobKey): Run | undefined {
    return this.#finishing.get(keyText(key));
  }

  /** Whether this process executes a run of the job. */
  isRunning(key: JobKey): boolean {
    return this.#byJob.has(keyText(key));
  }

  /** Resolves to the ended run; undefined if another process executes it. */
  async untilEnded(runId: number): Promise<Run | undefined> {
    return this.#running.get(runId)?.ended;
  }

  /** Stops runs of removed jobs, also if a new job has the same key. */
  endOrphans(): void {
    const { jobs, runs } = this.#options;
    for (const running of this.#running.values()) {
      const current = jobs.get(running.job);
      // A changed job is the same job only if the run is still recorded, because runs are removed with their
      // job.
      const isThere =
        current !== undefined && (current.revision === running.job.revision || runs.has(running.run.id));
      if (!isThere) stop(running, runStops.removed);
    }
  }

  /** @throws SvcError `too_many` */
  #takeSlot(uid: number): Disposable {
    const { slots } = this.#options;
    const slot = slots.tryAcquire(uid);
    if (slot !== undefined) return slot;
    const count =
      slots.reachedLimit(uid) === "perKey"
        ? `${slots.runningOf(uid)} runs of yours`
        : `${slots.running} runs of all users`;
    throw new SvcError("too_many", `${count} are running; try again later`);
  }

  #begin(job: Job, run: Run, slot: Disposable): void {
    const ended = Promise.withResolvers<Run>();
    const controller = new AbortController();
    const running = { job, run, controller, live: new LiveOutput(), ended: ended.promise };
    const key = keyText(job);
    // A run of a removed job with the same key, or one that is just ending.
    const before = this.#byJob.get(key);
    this.#running.set(run.id, running);
    this.#byJob.set(key, running);
    if (this.#stopping.signal.aborted) stop(running, runStops.stopping);
    // Not in this turn, so that the caller can follow the run.
    setImmediate(() => {
      void this.#execute(running, before).then((result) => {
        this.#running.delete(run.id);
        if (this.#byJob.get(key) === running) this.#byJob.delete(key);
        slot[Symbol.dispose]();
        running.live.end();
        ended.resolve(result);
      });
    });
  }

  /**
   * From the action to the record; never rejects.
   * @param before ends first, so that runs of one key never overlap
   */
  async #execute(running: RunningJob, before: RunningJob | undefined): Promise<Run> {
    const { run, live, controller } = running;
    await before?.ended;
    const output = new CappedOutput();
    const { clock, runs } = this.#options;
    using writer = new OutputWriter(clock, async () => {
      using _slot = await this.#outputWrites.acquire(run.job.ownerUid);
      await runs.storeOutput(run.id, output.read().text);
    });
    const end = await this.#act(running, (piece) => {
      const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
      output.push(bytes);
      writer.change();
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
      // The async context of timers and events does not identify the job's owner.
      const share = work.isRoot ? rootShare : job.ownerUid;
      return { result: await onShareOf(share, () => actions[job.action.type](job, work)) };
    } catch (thrown) {
      this.#logDefect(running, thrown);
      return { thrown };
    }
  }

  /** Performs the work after the record, and records its failure. */
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

  /** Retries until it is recorded, because the job cannot run again before. */
  async #record(run: Run, outcome: RunOutcome, write: () => Promise<Run>): Promise<Run> {
    const { clock, log } = this.#options;
    const { id, job } = run;
    for (let delayMs = firstRecordRetryMs; ; delayMs = Math.min(delayMs * 2, maxRecordRetryMs)) {
      try {
        return await write();
      } catch (error) {
        const details = { err: error, run: id, job: job.id, owner: job.ownerUid, status: outcome.status };
        log.error(details, "failed to record the end of a run; retrying");
      }
      const ended = { ...run, endedAtMs: clock.nowMs(), outcome };
      // The next daemon records it as INTERRUPTED.
      if (this.#stopping.signal.aborted) return ended;
      try {
        await pause(clock, delayMs, this.#stopping.signal);
      } catch {
        // The daemon is stopping: make one last attempt.
      }
    }
  }

  #logDefect({ run }: RunningJob, thrown: unknown): void {
    if (thrown instanceof SvcError || thrown instanceof RunStopped) return;
    const { id, job } = run;
    this.#options.log.error(
      { err: thrown, run: id, job: job.id, owner: job.ownerUid },
      "unexpected error in a run",
    );
  }

  /** Stops all runs, and waits for their ends. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort(new RunStopped(runStops.stopping));
    await Promise.allSettled(this.#opening);
    const all = [...this.#running.values()];
    if (all.length === 0) return;
    for (const running of all) stop(running, runStops.stopping);
    const tooLate = Promise.withResolvers<undefined>();
    // The host's clock, because the stop must end even with a simulated clock.
    using _deadline = systemClock().setTimer(stopMs, () => tooLate.resolve(undefined));
    await Promise.race([Promise.all(all.map(({ ended }) => ended)), tooLate.promise]);
  }
}

function stop({ controller }: RunningJob, why: RunStop): void {
  // Only the first reason counts.
  if (!controller.signal.aborted) controller.abort(new RunStopped(why));
}
