/**
 * `app_update`: upgrades an app to the newest version; one that runs is stopped for it, and started again whatever becomes of
 * it (S 1.4.9). A run that is canceled or too late ends only when the app is up again: upgrades can be cancelled, what
 * surrounds them cannot.
 */
import type { Apps } from "../../apps/apps.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf } from "./job-app.ts";

/** A version that comes with a new license waits for somebody who reads it. */
const newest = { version: "", licenseAck: false, permissionsAck: false, stopApp: true };

export function createAppUpdateAction(apps: Pick<Apps, "upgrade">): Action {
  return async (job, { isRoot, signal, write }) => {
    const app = appOf(job);
    const { upToDate, from, to } = await apps.upgrade(app, newest, callerOf(job, { isRoot }), { signal });
    if (upToDate) write(`${app} ${to} is up to date\n`);
    else if (from === to) write(`${app} ${to} taken anew from its source\n`);
    else write(`${app} upgraded from ${from} to ${to}\n`);
    return {};
  };
}
