/** `app_start`, `app_stop`, `app_restart`: the same as the operations of these names (S 1.4.9). */
import type { AppCaller } from "../../apps/app-registry.ts";
import { unlessAborted } from "../../lib/unless-aborted.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf, type AppHands } from "./app-hands.ts";

export type LifecycleVerb = "start" | "stop" | "restart";

/** An operation goes on to its end also when the run is canceled or too late: a half stopped app helps nobody (D14). */
export function createLifecycleAction(
  apps: Pick<AppHands, "startApp" | "stopApp" | "restartApp">,
  verb: LifecycleVerb,
): Action {
  const operate = (id: string, caller: AppCaller): Promise<unknown> => {
    switch (verb) {
      case "start":
        return apps.startApp(id, caller);
      case "stop":
        return apps.stopApp(id, caller);
      case "restart":
        return apps.restartApp(id, caller);
    }
  };
  return {
    async run(job, work) {
      await unlessAborted(operate(appOf(job), callerOf(job, work)), work.signal);
      return {};
    },
  };
}
