/** `app_start`, `app_stop`, `app_restart`: the same as the operations of these names (S 1.4.9). */
import type { Apps } from "../../apps/apps.ts";
import { unlessAborted } from "../../lib/unless-aborted.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf } from "./job-app.ts";

export type LifecycleVerb = "startApp" | "stopApp" | "restartApp";

/** An operation goes on to its end also when the run is canceled or too late: a half stopped app helps nobody (D14). */
export function createLifecycleAction(apps: Pick<Apps, LifecycleVerb>, verb: LifecycleVerb): Action {
  return async (job, work) => {
    await unlessAborted(apps[verb](appOf(job), callerOf(job, work)), work.signal);
    return {};
  };
}
