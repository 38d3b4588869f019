/** Archives as their storages have them, asked side by side; what cannot be reached is said and holds nobody up. */
import type { AppCaller } from "../apps/app-registry.ts";
import { invalidField, SvcError } from "../errors.ts";
import { decodePageToken, encodePageToken } from "../apps/page-token.ts";
import { keyOf, type Catalogue } from "./catalogue.ts";
import type { StoredArchive } from "./storages/storage.ts";
import type { StorageList } from "./storages/storage-list.ts";

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

export class ArchiveList {
  readonly #storages: StorageList;
  readonly #catalogue: Catalogue;

  constructor(storages: StorageList, catalogue: Catalogue) {
    this.#storages = storages;
    this.#catalogue = catalogue;
  }

  /** Newest first. @throws SvcError `not_found` for a storage */
  async list({ appId, storage, limit, pageToken }: ListRequest, caller: AppCaller): Promise<ListedArchives> {
    const names =
      storage === "" ? this.#storages.all().map(({ name }) => name) : [this.#storages.find(storage).name];
    const errors: ListedArchives["errors"] = [];
    const lists = await Promise.all(
      names.map(async (name): Promise<ListedArchive[]> => {
        try {
          return await this.#of(name, appId);
        } catch (error) {
          const why =
            error instanceof SvcError ? error.message : "it cannot be listed; the daemon's log says why";
          errors.push({ storage: name, error: why });
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
    const known = this.#catalogue.archives(appId === "" ? undefined : appId);
    const there = await this.#storages
      .open(storage)
      .list(appId === "" ? undefined : appId, AbortSignal.timeout(listMs));
    return there.map((archive) => {
      const row = known.get(keyOf({ storage, name: archive.name }));
      return { ...archive, storage, verifiedAtMs: row?.verifiedAtMs, restoredAtMs: row?.restoredAtMs };
    });
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
