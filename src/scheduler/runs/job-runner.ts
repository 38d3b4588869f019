/** What runs jobs, as the evaluator and the API see it. */
import type { Job, JobKey } from "../jobs/job.ts";
import type { RunStop } from "./run-outcome.ts";
import type { Run, RunCause, StartedRun } from "./run.ts";

/** A run whose job is removed is ended by the runner itself, whoever removes it. */
export interface JobRunner {
  /**
   * Opens a run and lets it go on by itself; resolves as soon as the run is recorded. While one goes, in this process or
   * another, nothing is started and that one is the answer.
   *
   * @param place room that was waited for, which is the run's from now on; without it there must be some
   * @throws SvcError `not_found` when the job is gone; `failed_precondition` when its owner is; `too_many` without room; what the store throws, and then nothing
   *   was started
   */
  start(job: Job, cause: RunCause, place?: Disposable): Promise<StartedRun>;

  /**
   * The output of a run as it comes, in write order, until it has ended; pieces may split characters. It listens from the
   * call on, not from the first `next`, so whoever calls in the turn in which `start` resolved misses nothing. Ends at
   * once, without output, for a run that this process does not execute. A reader that stays behind further than the
   * runner's bound misses output; it never holds the run up.
   *
   * @param signal ends the listening, never the run
   */
  follow(runId: number, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /**
   * Ends a run's processes (SIGTERM to its group, SIGKILL 5 s later) and resolves with the run as it ended: CANCELED, or
   * as it ended by itself just before.
   *
   * @param why default: that somebody wanted it
   * @throws SvcError `failed_precondition` when the run does not go any more, or is executed by another process
   */
  cancel(runId: number, why?: RunStop): Promise<Run>;

  /**
   * A run that is recorded as ended and has something left to do, which `cancel` can still prevent: a reboot within its
   * delay. Until then the job is not started again.
   */
  finishing(key: JobKey): Run | undefined;
}
