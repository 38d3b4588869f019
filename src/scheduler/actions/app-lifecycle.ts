/** `app_start`, `app_stop`, `app_restart`: the same as the operations of these names. */
import type { Lifecycle } from "../../apps/lifecycle/lifecycle.ts";
import type { AppFinder } from "../../apps/records/app-finder.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { type Action, appOf, callerOf } from "./action.ts";

export type LifecycleVerb = "start" | "stop" | "restart";

export interface LifecycleActionOptions {
  finder: Pick<AppFinder, "find" | "any">;
  lifecycle: Pick<Lifecycle, LifecycleVerb>;
}

/** An operation finishes even if the run is canceled or times out, so that no app is left half stopped. */
export function createLifecycleAction(
  { finder, lifecycle }: LifecycleActionOptions,
  verb: LifecycleVerb,
): Action {
  // An app that cannot be read can still be stopped.
  const find = verb === "stop" ? finder.any.bind(finder) : finder.find.bind(finder);
  return async (job, work) => {
    const change = async (): Promise<unknown> => lifecycle[verb](await find(appOf(job), callerOf(job, work)));
    await unlessAborted(change(), work.signal);
    return {};
  };
}
