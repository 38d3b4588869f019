/** The archives that the caller may see. */
import type { Client } from "@connectrpc/connect";
import type { BackupArchive, BackupService } from "../../../../gen/svc/v1/backup_pb.ts";
import { sentence } from "../../plain-text.ts";
import { backupTexts as labels } from "../../texts/backups.ts";

export interface Archives {
  /** Newest first. */
  readonly archives: readonly BackupArchive[];
  /** Messages about storages that did not respond. */
  readonly failed: readonly string[];
}

/** @param appId only of this app; empty: of all apps */
export async function readArchives(
  client: Client<typeof BackupService>,
  appId: string,
  signal: AbortSignal,
): Promise<Archives> {
  const archives: BackupArchive[] = [];
  const failed = new Set<string>();
  let pageToken = "";
  do {
    const page = await client.listBackups({ appId, pageToken }, { signal });
    archives.push(...page.backups);
    for (const { storage, error } of page.errors)
      failed.add(`${labels.storageFailed(storage)} ${sentence(error)}`);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return { archives, failed: [...failed] };
}
