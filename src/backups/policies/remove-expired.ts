/** Prunes backups: removes expired archives of an app from a storage after a new backup. */
import type { AppRecord } from "../../apps/records/app-record.ts";
import { messageForUsers } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { hostOf, parseArchiveName } from "../archives/archive-name.ts";
import { keyOf, type ArchiveCatalog, type ArchiveRef } from "../archives/archive-catalog.ts";
import { expiredArchives, type Retention } from "./retention.ts";
import type { StorageList } from "../storages/storage-list.ts";

/** Timeout in milliseconds. The backup is complete, so its caller should not wait longer. */
const timeoutMs = 60_000;

export interface RemoveExpiredOptions {
  storages: Pick<StorageList, "open">;
  catalog: Pick<ArchiveCatalog, "archives" | "forget">;
  storeId: string;
  log: Pick<Log, "warn">;
}

/**
 * Considers only archives that exist on the storage, without those of an earlier owner's app with the same
 * ID. Archives that are newer than the new one were made while the host's clock was ahead: they would expire it.
 * A failure is only a warning, because the new backup is complete.
 * @param made the new archive
 * @returns the names of the removed archives, and a warning if not all were removed
 */
export async function removeExpired(
  { storages, catalog, storeId, log }: RemoveExpiredOptions,
  { storage, name: made }: Pick<ArchiveRef, "storage" | "name">,
  { id: appId, ownerUid }: Pick<AppRecord, "id" | "ownerUid">,
  retention: Retention,
  deadlineMs = timeoutMs,
): Promise<{ removed: string[]; warnings: string[] }> {
  const removed: string[] = [];
  const warnings: string[] = [];
  const signal = AbortSignal.timeout(deadlineMs);
  const madeAtMs = parseArchiveName(made)?.createdAtMs ?? 0;
  try {
    const opened = storages.open(storage);
    const known = catalog.archives(appId);
    // Operations on a hanging disk cannot be canceled.
    const listed = await unlessAborted(opened.list(appId, signal), signal);
    const owned = listed.flatMap(({ name, createdAtMs, host, ownerUid: whose }) => {
      const row = known.get(keyOf({ storage, name }));
      const isOurs = row?.isComplete === true && host === hostOf(storeId) && whose === ownerUid;
      return isOurs && createdAtMs <= madeAtMs ? [{ name, createdAtMs, verifiedAtMs: row.verifiedAtMs }] : [];
    });
    for (const name of expiredArchives(owned, retention)) {
      await unlessAborted(opened.remove({ appId, name }, signal), signal);
      await catalog.forget({ storage, name });
      removed.push(name);
    }
  } catch (error) {
    log.warn({ err: error, storage, app: appId }, "failed to remove old backups");
    warnings.push(
      `old backups of "${appId}" on storage "${storage}" were not removed: ${reasonOf(error, signal, deadlineMs)}`,
    );
  }
  return { removed, warnings };
}

function reasonOf(error: unknown, { aborted }: AbortSignal, deadlineMs: number): string {
  if (aborted) return `the storage did not respond within ${deadlineMs / 1000} s`;
  return messageForUsers(error);
}
