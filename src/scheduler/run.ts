/** A run of a job: opened before anything is done, closed with what came of it. */
import type { ScheduleRunStatus, ScheduleRunTrigger } from "../../gen/svc/v1/words.ts";
import type { JobKey } from "./job.ts";

/** How a run ended. */
export interface RunOutcome {
  readonly status: Exclude<ScheduleRunStatus, "RUNNING">;
  readonly exitCode?: number;
  readonly httpStatus?: number;
  /** Output and error each have at most 64 KiB, head and tail with a marker between where there was more. */
  readonly output: string;
  readonly error: string;
  readonly truncated: boolean;
}

export interface Run {
  /** Unique on the node, growing. */
  readonly id: number;
  readonly job: JobKey;
  readonly trigger: ScheduleRunTrigger;
  /** 1, more for retries. */
  readonly attempt: number;
  /** The minute that it was due in, unix milliseconds; absent for manual runs. */
  readonly scheduledAtMs?: number;
  readonly startedAtMs: number;
  readonly endedAtMs?: number;
  /** Absent while it runs. */
  readonly outcome?: RunOutcome;
}
