/** What a job does when it runs: one file per kind of action, all of this shape. */
import type { ScheduleActionType } from "../../../gen/svc/v1/words.ts";
import type { Job } from "../jobs/job.ts";

/** What surrounds an action while it runs. */
export interface ActionWork {
  /** Whether the job's owner has the root context: may do what concerns the host and not one user's apps. */
  readonly isRoot: boolean;
  /** Aborts at the job's timeout, when the run is canceled, and when the daemon stops. */
  readonly signal: AbortSignal;
  /** Takes output; nothing waits for it. */
  readonly write: (output: Uint8Array | string) => void;
  /** Added to the environment of a command. */
  readonly env?: Readonly<Record<string, string>>;
}

/** How an action ended that could be tried at all. */
export interface ActionResult {
  /** What went wrong; absent or empty when nothing did. */
  readonly error?: string;
  /** Exit code of a command. */
  readonly exitCode?: number;
  /** Status of an HTTP answer. */
  readonly httpStatus?: number;
  /** Not all of the output was taken. */
  readonly isTruncated?: boolean;
  /** What is done once the run is recorded; when it throws, the record says so. */
  readonly afterwards?: (signal: AbortSignal) => Promise<void>;
}

/** @throws SvcError when it cannot be done: its sentence is the run's error */
export type Action = (job: Job, work: ActionWork) => Promise<ActionResult>;

/** One that needs no job around it. */
export type PlainAction = (job: Pick<Job, "ownerUid" | "action">, work: ActionWork) => Promise<ActionResult>;

export type Actions = Readonly<Record<ScheduleActionType, Action>>;
