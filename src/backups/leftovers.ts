/** What processes left behind that ended in the middle of an upload. */
import { isExecutorAlive } from "../store/executors.ts";
import type { Catalogue, CataloguedArchive } from "./catalogue.ts";
import { isStored } from "./storages/storage.ts";
import type { StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";

/** For one archive. */
const settleMs = 60_000;

export interface LeftoversOptions {
  storages: Pick<StorageList, "open">;
  catalogue: Catalogue;
  log: Pick<Log, "info" | "warn">;
}

/**
 * An archive that came whole to its storage counts as whole from now on; of any other its storage keeps nothing. What
 * cannot be reached is left for the next time.
 */
export async function settleLeftovers({ storages, catalogue, log }: LeftoversOptions): Promise<void> {
  for (const archive of catalogue.announced()) {
    if (archive.executor !== undefined && (await isExecutorAlive(archive.executor))) continue;
    try {
      const isWhole = await settle(storages, catalogue, archive);
      log.info({ ...archive, isWhole }, "the upload of a backup that was cut short is settled");
    } catch (error) {
      log.warn({ err: error, ...archive }, "the upload of a backup that was cut short cannot be settled now");
    }
  }
}

async function settle(
  storages: Pick<StorageList, "open">,
  catalogue: Catalogue,
  archive: CataloguedArchive,
): Promise<boolean> {
  const signal = AbortSignal.timeout(settleMs);
  const storage = storages.open(archive.storage);
  const isThere = await isStored(storage, archive, signal);
  await storage.abandon(archive, signal);
  await (isThere ? catalogue.confirm(archive) : catalogue.forget(archive));
  return isThere;
}
