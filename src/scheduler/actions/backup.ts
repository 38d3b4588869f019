/** `backup`: one archive to each storage; a run fails when one of them did not get it (S 1.4.9). */
import type { AppCaller } from "../../apps/app-registry.ts";
import type { Action } from "./action.ts";
import { appOf, callerOf } from "./app-hands.ts";

/** The part of `Backups` that the action uses. */
export interface BackupHands {
  create(
    appId: string,
    request: { storages: readonly string[]; keep: number | undefined; mode: "" },
    caller: AppCaller,
    work: { signal?: AbortSignal },
  ): Promise<{
    results: readonly { storage: string; name: string; error: string; removed: readonly string[] }[];
    warnings: readonly string[];
  }>;
}

export function createBackupAction(backups: BackupHands): Action {
  return {
    async run(job, { isRoot, signal, write }) {
      const { storages = [], keep } = job.action;
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
    },
  };
}
