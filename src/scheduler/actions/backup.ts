/** `backup`: one archive to each storage; the run fails if a storage fails. */
import type { Backups } from "../../backups/backups.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf } from "./job-app.ts";

export function createBackupAction(backups: Pick<Backups, "create">): Action {
  return async (job, { isRoot, signal, write }) => {
    const { storages = [] } = job.action;
    // Older clients set only the action's field; the two never differ.
    const keep = job.keep ?? job.action.keep;
    const wanted = { storages, keep, mode: "" } as const;
    const { results, warnings } = await backups.create(appOf(job), wanted, callerOf(job, { isRoot }), {
      signal,
    });
    for (const warning of warnings) write(`warning: ${warning}\n`);
    for (const { storage, name, error, removed } of results) {
      write(error === "" ? `${storage}: ${name}\n` : `${storage}: ${error}\n`);
      for (const old of removed) write(`${storage}: removed ${old}\n`);
    }
    const failed = results.filter(({ error }) => error !== "");
    if (failed.length === 0) return {};
    return { error: failed.map(({ storage, error }) => `${storage}: ${error}`).join("; ") };
  };
}
