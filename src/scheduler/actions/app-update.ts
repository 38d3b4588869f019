/**
 * `app_update`: upgrades an app to the newest version. A running app is stopped for it, and started again
 * even if the upgrade fails. A canceled or late run ends only when the app is up again: the upgrade can be
 * canceled, but not the restart.
 */
import type { Upgrader } from "../../apps/changes/upgrade.ts";
import type { AppFinder } from "../../apps/records/app-finder.ts";
import { type Action, appOf, callerOf } from "./action.ts";

/** A version with a new license needs a user's consent. */
const newest = { version: "", licenseAck: false, permissionsAck: false, stopApp: true };

export interface AppUpdateActionOptions {
  finder: Pick<AppFinder, "find">;
  upgrader: Pick<Upgrader, "upgrade">;
}

export function createAppUpdateAction({ finder, upgrader }: AppUpdateActionOptions): Action {
  return async (job, { isRoot, signal, write }) => {
    const app = appOf(job);
    const caller = callerOf(job, { isRoot });
    const found = await finder.find(app, caller);
    const { upToDate, from, to } = await upgrader.upgrade(found, newest, caller, { signal });
    if (upToDate) write(`${app} ${to} is up to date\n`);
    else if (from === to) write(`${app} ${to} reinstalled from its source\n`);
    else write(`${app} upgraded from ${from} to ${to}\n`);
    return {};
  };
}
