/** `backup`: one archive to each storage; the run fails if a storage fails. */
import type { Backups } from "../../backups/backups.ts";
import { type Action, appOf, callerOf } from "./action.ts";

export function createBackupAction(backups: Pick<Backups, "create">): Action {
  return async (job, { isRoot, signal, write }) => {
    const { storages = [] } = job.action;
    // Older clients set only the action's field; the two never differ.
    const keep = job.keep ?? job.action.keep;
    const options = { storages, keep, mode: "" } as const;
    const { results, warnings } = await backups.create(appOf(job), options, callerOf(job, { isRoot }), {
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

/**
 * `backup_verify`: restores the newest archive of an app on each storage to a temporary directory; the run
 * fails if one cannot be restored.
 */
export function createBackupVerifyAction(backups: Pick<Backups, "newest" | "verifier">): Action {
  return async (job, { isRoot, signal, write }) => {
    const caller = callerOf(job, { isRoot });
    const { archives, errors } = await backups.newest(appOf(job), job.action.storages ?? [], caller);
    const failures = errors.map(({ storage, error }) => `${storage}: ${error}`);
    for (const archive of archives) {
      try {
        // Encrypted archives need an identity, which jobs do not have.
        const { entries } = await backups.verifier.verify({ ...archive, identity: "" }, true, caller, {
          signal,
        });
        write(`${archive.storage}: ${archive.name} can be restored (${entries} entries)\n`);
      } catch (error) {
        signal.throwIfAborted();
        failures.push(
          `${archive.storage}: ${archive.name}: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
    }
    for (const failure of failures) write(`${failure}\n`);
    if (archives.length === 0 && failures.length === 0) return { error: "there is no backup to verify" };
    return failures.length === 0 ? {} : { error: failures.join("; ") };
  };
}
