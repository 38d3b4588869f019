/** `backup_verify`: restores the newest archive of an app on each storage for a trial; a run fails when one cannot be. */
import type { AppCaller } from "../../apps/app-registry.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf } from "./app-hands.ts";

/** The part of `Backups` that the action uses. */
export interface VerifyHands {
  newest(
    appId: string,
    storages: readonly string[],
    caller: AppCaller,
  ): Promise<{
    archives: readonly { storage: string; appId: string; name: string }[];
    errors: readonly { storage: string; error: string }[];
  }>;
  verify(
    archive: { storage: string; appId: string; name: string },
    deep: boolean,
    caller: AppCaller,
    work: { signal?: AbortSignal },
  ): Promise<{ entries: number }>;
}

export function createBackupVerifyAction(backups: VerifyHands): Action {
  return {
    async run(job, { isRoot, signal, write }) {
      const caller = callerOf(job, { isRoot });
      const { archives, errors } = await backups.newest(appOf(job), job.action.storages ?? [], caller);
      const failures = errors.map(({ storage, error }) => `${storage}: ${error}`);
      for (const archive of archives) {
        try {
          const { entries } = await backups.verify(archive, true, caller, { signal });
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
    },
  };
}
