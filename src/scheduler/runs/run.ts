/** A run of a job: opened before anything is done, closed with what came of it. */
import type { ScheduleRunStatus, ScheduleRunTrigger } from "../../../gen/svc/v1/words.ts";
import type { JobKey } from "../jobs/job.ts";

/** Why a run starts. */
export interface RunCause {
  readonly trigger: ScheduleRunTrigger;
  /** 1, more for retries. */
  readonly attempt: number;
  /** The minute that it was due in, unix milliseconds; absent for manual runs. */
  readonly scheduledAtMs?: number;
}

/** How a run ended. */
export interface RunOutcome {
  readonly status: Exclude<ScheduleRunStatus, "RUNNING">;
  /** Exit code of a command. */
  readonly exitCode?: number;
  /** Status of an HTTP answer. */
  readonly httpStatus?: number;
  /** Output and error each have at most 64 KiB, head and tail with a marker between where there was more. */
  readonly output: string;
  /** Empty when nothing went wrong. */
  readonly error: string;
  /** Output or error is not whole. */
  readonly truncated: boolean;
  /** svc itself ended it, by its own stop or death: the next daemon makes up for it where the job wants that. */
  readonly isCutShort?: boolean;
}

export interface Run extends RunCause {
  /** Unique on the node, growing. Not for users: it would tell them how many runs others had. */
  readonly id: number;
  /** Counted for each owner: what users know it by. */
  readonly number: number;
  readonly job: JobKey;
  readonly startedAtMs: number;
  readonly endedAtMs?: number;
  /** Absent while it runs. */
  readonly outcome?: RunOutcome;
}

/** Answer to whoever wanted a run: theirs, or the one under way already. */
export interface StartedRun {
  /** False: a run was running already, and `run` is that one. */
  readonly started: boolean;
  readonly run: Run;
}
