/** Removes the archives of an app that a new one on the same storage outlives. */
import type { AppRecord } from "../apps/app-record.ts";
import type { Log } from "../lib/log.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { hostOf } from "./archive-name.ts";
import { keyOf, type Catalogue } from "./catalogue.ts";
import { expiredArchives, type Retention } from "./rotation.ts";
import type { StorageList } from "./storages/storage-list.ts";

/** The backup is made by then: whoever waits for it waits no longer for the old ones. */
const rotateMs = 60_000;

export interface RotateOptions {
  storages: Pick<StorageList, "open">;
  catalogue: Pick<Catalogue, "archives" | "forget">;
  storeId: string;
  log: Pick<Log, "warn">;
}

/**
 * Of what is really there: names that the catalogue alone has count for nothing, nor do archives of somebody else's app
 * that had the id before. What goes wrong is logged.
 * @returns the names of those that are gone
 */
export async function rotate(
  { storages, catalogue, storeId, log }: RotateOptions,
  storage: string,
  { id: appId, ownerUid }: Pick<AppRecord, "id" | "ownerUid">,
  retention: Retention,
  deadlineMs = rotateMs,
): Promise<string[]> {
  const removed: string[] = [];
  try {
    const place = storages.open(storage);
    const known = catalogue.archives(appId);
    const signal = AbortSignal.timeout(deadlineMs);
    // A directory may be on a disk that hangs, where nothing can be given up.
    const there = await unlessAborted(place.list(appId, signal), signal);
    const ours = there.flatMap(({ name, createdAtMs, host, ownerUid: whose }) => {
      const row = known.get(keyOf({ storage, name }));
      const isOurs = row?.isWhole === true && host === hostOf(storeId) && whose === ownerUid;
      return isOurs ? [{ name, createdAtMs, verifiedAtMs: row.verifiedAtMs }] : [];
    });
    for (const name of expiredArchives(ours, retention)) {
      await unlessAborted(place.remove({ appId, name }, signal), signal);
      await catalogue.forget({ storage, name });
      removed.push(name);
    }
  } catch (error) {
    log.warn({ err: error, storage, app: appId }, "old backups could not be removed");
  }
  return removed;
}
