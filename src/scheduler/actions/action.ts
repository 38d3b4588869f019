/** The interface of job actions; each kind of action has one file. */
import type { ScheduleActionType } from "../../../gen/svc/v1/values.ts";
import type { Job } from "../jobs/job.ts";
import type { AppCaller } from "../../apps/records/app-registry.ts";

/** The context of a running action. */
export interface ActionWork {
  /** Whether the job's owner is root, who may act on the host and on all users' apps. */
  readonly isRoot: boolean;
  /** Aborts at the job's timeout, when the run is canceled, and when the daemon stops. */
  readonly signal: AbortSignal;
  /** Accepts output; the action does not wait for it. */
  readonly write: (output: Uint8Array | string) => void;
  /** Added to the environment of a command. */
  readonly env?: Readonly<Record<string, string>>;
}

/** The result of an action that was started. */
export interface ActionResult {
  /** The error; absent or empty after a success. */
  readonly error?: string;
  /** Exit code of a command. */
  readonly exitCode?: number;
  /** Status of an HTTP response. */
  readonly httpStatus?: number;
  /** Whether the output is incomplete. */
  readonly isTruncated?: boolean;
  /** Work after the run is recorded; its error is added to the record. */
  readonly afterwards?: (signal: AbortSignal) => Promise<void>;
}

/** @throws SvcError if it cannot be performed; the message becomes the run's error */
export type Action = (job: Job, work: ActionWork) => Promise<ActionResult>;

/** An action that needs no stored job. */
export type PlainAction = (job: Pick<Job, "ownerUid" | "action">, work: ActionWork) => Promise<ActionResult>;

export type Actions = Readonly<Record<ScheduleActionType, Action>>;

/** The caller of an action: the job's owner, who cannot see other users' apps. */
export function callerOf(job: Pick<Job, "ownerUid">, work: Pick<ActionWork, "isRoot">): AppCaller {
  return { uid: job.ownerUid, root: work.isRoot, ownerUid: job.ownerUid };
}

/** The app of an action that requires one. */
export function appOf(job: Job): string {
  const { app } = job.action;
  if (app === undefined) throw new Error(`the action of job "${job.id}" names no app`);
  return app;
}
