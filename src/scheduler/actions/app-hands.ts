/** What actions do with apps, as the owner of their job: another user's app is not found. */
import type { AppCaller } from "../../apps/app-registry.ts";
import type { Job } from "../jobs/job.ts";
import type { ActionWork } from "./action.ts";

/** The part of `Apps` that actions use. */
export interface AppHands {
  get(id: string, caller: AppCaller): Promise<{ readonly state: string }>;
  startApp(id: string, caller: AppCaller): Promise<unknown>;
  stopApp(id: string, caller: AppCaller): Promise<unknown>;
  restartApp(id: string, caller: AppCaller): Promise<unknown>;
  upgrade(
    id: string,
    request: { version: string; licenseAck: boolean; permissionsAck: boolean; stopApp: boolean },
    caller: AppCaller,
    work: { signal?: AbortSignal },
  ): Promise<{ readonly upToDate: boolean; readonly from: string; readonly to: string }>;
  /** Where the app lies and to whom its files belong. */
  place(id: string, caller: AppCaller): Promise<{ readonly directory: string; readonly uid: number }>;
}

export function callerOf(job: Pick<Job, "ownerUid">, work: Pick<ActionWork, "isRoot">): AppCaller {
  return { uid: job.ownerUid, root: work.isRoot, ownerUid: job.ownerUid };
}

/** The app of an action that cannot do without one. */
export function appOf(job: Job): string {
  const { app } = job.action;
  if (app === undefined) throw new Error(`the action of job "${job.id}" names no app`);
  return app;
}
