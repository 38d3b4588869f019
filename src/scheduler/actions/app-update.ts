/**
 * `app_update`: stops a running app, upgrades it to the newest version, and starts it again, whatever became of that
 * (S 1.4.9). A run that is canceled or too late ends only when the app is up again: upgrades can be cancelled, what
 * surrounds them cannot.
 */
import { SvcError } from "../../errors.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf, runningStates, type AppHands } from "./app-hands.ts";

/** A version that comes with a new license waits for somebody who reads it. */
const newest = { version: "", licenseAck: false, permissionsAck: false };

export function createAppUpdateAction(
  apps: Pick<AppHands, "get" | "startApp" | "stopApp" | "upgrade">,
): Action {
  return {
    async run(job, { isRoot, signal, write }) {
      const [app, caller] = [appOf(job), callerOf(job, { isRoot })];
      const wasRunning = runningStates.has((await apps.get(app, caller)).state);
      if (wasRunning) await apps.stopApp(app, caller);
      const upgraded = await outcomeOf(
        apps.upgrade(app, newest, caller, { signal }).then(({ upToDate, from, to }) => {
          write(upToDate ? `${app} ${to} is up to date\n` : `${app} upgraded from ${from} to ${to}\n`);
        }),
      );
      const restarted = wasRunning ? await outcomeOf(apps.startApp(app, caller)) : {};
      if ("error" in restarted) {
        write(`${app} could not be started again\n`);
        if ("error" in upgraded) throw bothFailed(upgraded.error, restarted.error);
        throw restarted.error;
      }
      if ("error" in upgraded) throw upgraded.error;
      return {};
    },
  };
}

async function outcomeOf(work: Promise<unknown>): Promise<{ error?: unknown }> {
  try {
    await work;
    return {};
  } catch (error) {
    return { error };
  }
}

function bothFailed(upgradeError: unknown, startError: unknown): SvcError {
  const [why, whyToo] = [sentenceOf(upgradeError), sentenceOf(startError)];
  return new SvcError(
    "start_failed",
    `the upgrade failed: ${why}; starting the old version again failed too: ${whyToo}`,
    { cause: new AggregateError([upgradeError, startError]) },
  );
}

function sentenceOf(error: unknown): string {
  return error instanceof SvcError ? error.message : "an internal error, which the daemon's log has";
}
