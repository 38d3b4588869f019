/** Which app an action is for, and who asks for it: the owner of the job, to whom another user's app is not found. */
import type { AppCaller } from "../../apps/app-registry.ts";
import type { Job } from "../jobs/job.ts";
import type { ActionWork } from "./action.ts";

export function callerOf(job: Pick<Job, "ownerUid">, work: Pick<ActionWork, "isRoot">): AppCaller {
  return { uid: job.ownerUid, root: work.isRoot, ownerUid: job.ownerUid };
}

/** The app of an action that cannot do without one. */
export function appOf(job: Job): string {
  const { app } = job.action;
  if (app === undefined) throw new Error(`the action of job "${job.id}" names no app`);
  return app;
}
