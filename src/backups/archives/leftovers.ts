/** Settles uploads of processes that died. */
import { isExecutorAlive } from "../../store/executors.ts";
import type { ArchiveCatalog, CatalogedArchive } from "./archive-catalog.ts";
import { isStored } from "../storages/storage.ts";
import type { StorageList } from "../storages/storage-list.ts";
import type { Log } from "../../lib/log.ts";

/** Timeout for one archive, in milliseconds. */
const settleMs = 60_000;

export interface LeftoversOptions {
  storages: Pick<StorageList, "open">;
  catalog: ArchiveCatalog;
  log: Pick<Log, "info" | "warn">;
}

/**
 * A completely uploaded archive is confirmed; the parts of any other are removed. Unreachable storages are
 * retried later.
 */
export async function settleLeftovers({ storages, catalog, log }: LeftoversOptions): Promise<void> {
  for (const archive of catalog.unconfirmed()) {
    if (archive.executor !== undefined && (await isExecutorAlive(archive.executor))) continue;
    try {
      const isComplete = await settle(storages, catalog, archive);
      log.info({ ...archive, isComplete }, "settled an interrupted backup upload");
    } catch (error) {
      log.warn({ err: error, ...archive }, "failed to settle an interrupted backup upload");
    }
  }
}

async function settle(
  storages: Pick<StorageList, "open">,
  catalog: ArchiveCatalog,
  archive: CatalogedArchive,
): Promise<boolean> {
  const signal = AbortSignal.timeout(settleMs);
  const storage = storages.open(archive.storage);
  const isThere = await isStored(storage, archive, signal);
  await storage.abandon(archive, signal);
  await (isThere ? catalog.confirm(archive) : catalog.forget(archive));
  return isThere;
}
