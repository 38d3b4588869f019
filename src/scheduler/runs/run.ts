/** A run of a job: recorded before it starts, completed with its outcome. */
import type { ScheduleRunStatus, ScheduleRunTrigger } from "../../../gen/svc/v1/values.ts";
import type { JobKey } from "../jobs/job.ts";

/** Why a run starts. */
export interface RunCause {
  readonly trigger: ScheduleRunTrigger;
  /** 1, more for retries. */
  readonly attempt: number;
  /** The minute in which it was due, unix milliseconds; absent for manual runs. */
  readonly scheduledAtMs?: number;
}

/** How a run ended. */
export interface RunOutcome {
  readonly status: Exclude<ScheduleRunStatus, "RUNNING">;
  /** Exit code of a command. */
  readonly exitCode?: number;
  /** Status of an HTTP response. */
  readonly httpStatus?: number;
  /** Output and error each have at most 64 KiB: head and tail, with a marker in between if truncated. */
  readonly output: string;
  /** Empty for none. */
  readonly error: string;
  /** Whether output or error is truncated. */
  readonly truncated: boolean;
  /**
   * Whether svc itself interrupted it, by stopping or crashing; the next daemon repeats it if the job retries
   * or catches up.
   */
  readonly isCutShort?: boolean;
}

export interface Run extends RunCause {
  /** Unique and increasing on the node. Not shown to users, because it reveals the number of others' runs. */
  readonly id: number;
  /** Counted per owner; shown to users. */
  readonly number: number;
  readonly job: JobKey;
  readonly startedAtMs: number;
  readonly endedAtMs?: number;
  /** Absent while it runs. */
  readonly outcome?: RunOutcome;
}

/** The result of a start: the new run, or the current one. */
export interface StartedRun {
  /** False: a run was already in progress; `run` is that run. */
  readonly started: boolean;
  readonly run: Run;
}
