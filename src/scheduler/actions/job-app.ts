/** The app and the caller of an action. The caller is the job's owner, who cannot see other users' apps. */
import type { AppCaller } from "../../apps/records/app-registry.ts";
import type { Job } from "../jobs/job.ts";
import type { ActionWork } from "./action.ts";

export function callerOf(job: Pick<Job, "ownerUid">, work: Pick<ActionWork, "isRoot">): AppCaller {
  return { uid: job.ownerUid, root: work.isRoot, ownerUid: job.ownerUid };
}

/** The app of an action that requires one. */
export function appOf(job: Job): string {
  const { app } = job.action;
  if (app === undefined) throw new Error(`the action of job "${job.id}" names no app`);
  return app;
}
