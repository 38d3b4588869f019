/**
 * Lists archives of all storages in parallel. Unreachable storages are reported, and do not delay the others.
 */
import type { AppCaller } from "../../apps/records/app-registry.ts";
import { invalidField, SvcError } from "../../errors.ts";
import { decodePageToken, encodePageToken } from "../../apps/records/page-token.ts";
import { keyOf, type ArchiveCatalog } from "./archive-catalog.ts";
import type { StoredArchive } from "../storages/storage.ts";
import type { StorageList } from "../storages/storage-list.ts";
import type { Log } from "../../lib/log.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { slicePauses } from "../../lib/slice-pauses.ts";

export interface ListRequest {
  /** Empty: all visible apps. */
  appId: string;
  /** Empty: all storages. */
  storage: string;
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

export interface ListedArchive extends StoredArchive {
  storage: string;
  /**
   * Whether its name says so, and a record confirms it. A storage without any records may have been added again, so
   * there the name suffices.
   */
  isOfThisNode: boolean;
  verifiedAtMs: number | undefined;
  restoredAtMs: number | undefined;
}

export interface ListedArchives {
  archives: ListedArchive[];
  errors: { storage: string; error: string }[];
  nextPageToken: string;
}

/** Timeout for one storage, in milliseconds. */
const listMs = 20_000;

export interface ArchiveListOptions {
  storages: Pick<StorageList, "all" | "find" | "open">;
  catalog: Pick<ArchiveCatalog, "archives">;
  log: Pick<Log, "warn">;
  /** See `hostOf`. */
  nodeId: string;
}

/** Newest first. @throws SvcError `not_found` for a storage */
export async function listArchives(
  options: ArchiveListOptions,
  { appId, storage, limit, pageToken }: ListRequest,
  caller: AppCaller,
  deadlineMs = listMs,
): Promise<ListedArchives> {
  const { storages, log } = options;
  const names = storage === "" ? storages.all().map(({ name }) => name) : [storages.find(storage).name];
  const errors: ListedArchives["errors"] = [];
  const lists = await Promise.all(
    names.map(async (name): Promise<ListedArchive[]> => {
      try {
        return await archivesOn(name, appId === "" ? undefined : appId, options, deadlineMs);
      } catch (error) {
        errors.push({ storage: name, error: whyNot(error, name, log) });
        return [];
      }
    }),
  );
  const visible = lists.flat().filter(({ ownerUid }) => caller.root || ownerUid === caller.uid);
  const sorted = visible.toSorted((a, b) => (placeOf(a) < placeOf(b) ? 1 : -1));
  const after = decode(pageToken);
  const rest = after === "" ? sorted : sorted.filter((each) => placeOf(each) < after);
  const archives = rest.slice(0, limit);
  const last = archives.at(-1);
  const nextPageToken =
    last === undefined || archives.length === rest.length ? "" : encodePageToken(placeOf(last));
  return { archives, errors, nextPageToken };
}

async function archivesOn(
  storage: string,
  appId: string | undefined,
  { storages, catalog, nodeId }: ArchiveListOptions,
  deadlineMs: number,
): Promise<ListedArchive[]> {
  const known = catalog.archives(appId);
  const signal = AbortSignal.timeout(deadlineMs);
  // Operations on a hanging disk cannot be canceled.
  const listing = unlessAborted(storages.open(storage).list(appId, signal), signal);
  const listed = await listing.catch((error: unknown) => {
    if (!signal.aborted) throw error;
    throw new SvcError("deadline_exceeded", `the storage did not respond within ${deadlineMs / 1000} s`);
  });
  const appsWithRecords = new Set(
    [...known.values()].flatMap((row) => (row.storage === storage ? row.appId : [])),
  );
  const archives: ListedArchive[] = [];
  const pause = slicePauses();
  for (const archive of listed) {
    await pause();
    const { name, host, appId: app } = archive;
    const row = known.get(keyOf({ storage, name }));
    const isOfThisNode = host === nodeId && (row !== undefined || !appsWithRecords.has(app));
    const { verifiedAtMs, restoredAtMs } = row ?? {};
    archives.push({ ...archive, storage, isOfThisNode, verifiedAtMs, restoredAtMs });
  }
  return archives;
}

function whyNot(error: unknown, storage: string, log: ArchiveListOptions["log"]): string {
  if (error instanceof SvcError) return error.message;
  log.warn({ err: error, storage }, "failed to list a backup storage");
  return "the storage cannot be listed; see the daemon's log";
}

/** Names start with the time. */
function placeOf({ name, storage }: ListedArchive): string {
  return `${name}\0${storage}`;
}

function decode(token: string): string {
  const position = decodePageToken(token);
  if (token !== "" && !position.includes("\0"))
    throw invalidField("page_token", "is not a token of this listing");
  return position;
}
