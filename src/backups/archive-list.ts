/** Archives as their storages have them, asked side by side; what cannot be reached is said and holds nobody up. */
import type { AppCaller } from "../apps/app-registry.ts";
import { invalidField, SvcError } from "../errors.ts";
import { decodePageToken, encodePageToken } from "../apps/page-token.ts";
import { keyOf, type Catalogue } from "./catalogue.ts";
import type { StoredArchive } from "./storages/storage.ts";
import type { StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";

export interface ListRequest {
  /** All visible ones when empty. */
  appId: string;
  /** All when empty. */
  storage: string;
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

export interface ListedArchive extends StoredArchive {
  storage: string;
  verifiedAtMs: number | undefined;
  restoredAtMs: number | undefined;
}

export interface ListedArchives {
  archives: ListedArchive[];
  errors: { storage: string; error: string }[];
  nextPageToken: string;
}

/** How long one storage may take. */
const listMs = 20_000;

export interface ArchiveListOptions {
  storages: Pick<StorageList, "all" | "find" | "open">;
  catalogue: Pick<Catalogue, "archives">;
  log: Pick<Log, "warn">;
}

export class ArchiveList {
  readonly #options: ArchiveListOptions;
  readonly #deadlineMs: number;

  constructor(options: ArchiveListOptions, deadlineMs = listMs) {
    this.#options = options;
    this.#deadlineMs = deadlineMs;
  }

  /** Newest first. @throws SvcError `not_found` for a storage */
  async list({ appId, storage, limit, pageToken }: ListRequest, caller: AppCaller): Promise<ListedArchives> {
    const { storages } = this.#options;
    const names = storage === "" ? storages.all().map(({ name }) => name) : [storages.find(storage).name];
    const errors: ListedArchives["errors"] = [];
    const lists = await Promise.all(
      names.map(async (name): Promise<ListedArchive[]> => {
        try {
          return await this.#of(name, appId);
        } catch (error) {
          errors.push({ storage: name, error: this.#why(name, error) });
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

  async #of(storage: string, appId: string): Promise<ListedArchive[]> {
    const { storages, catalogue } = this.#options;
    const known = catalogue.archives(appId === "" ? undefined : appId);
    const signal = AbortSignal.timeout(this.#deadlineMs);
    const listing = storages.open(storage).list(appId === "" ? undefined : appId, signal);
    // A directory may be on a disk that hangs, where nothing can be given up.
    const there = await unlessAborted(listing, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
      throw new SvcError("deadline_exceeded", `it did not answer within ${this.#deadlineMs / 1000} s`);
    });
    return there.map((archive) => {
      const row = known.get(keyOf({ storage, name: archive.name }));
      return { ...archive, storage, verifiedAtMs: row?.verifiedAtMs, restoredAtMs: row?.restoredAtMs };
    });
  }

  #why(storage: string, error: unknown): string {
    if (error instanceof SvcError) return error.message;
    this.#options.log.warn({ err: error, storage }, "a storage of backups cannot be listed");
    return "it cannot be listed; the daemon's log says why";
  }
}

/** Names begin with the time. */
function placeOf({ name, storage }: ListedArchive): string {
  return `${name}\0${storage}`;
}

function decode(token: string): string {
  const place = decodePageToken(token);
  if (token !== "" && !place.includes("\0")) throw invalidField("page_token", "is none of this listing's");
  return place;
}
