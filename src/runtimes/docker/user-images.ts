/**
 * The local images that apps of regular users may run or build on. All users share the engine's images, and root may
 * have pulled private ones: a regular user may use an image that svc pulled for that user's apps, or that the
 * configuration shares.
 */
import { SvcError } from "../../errors.ts";
import type { EngineEvents } from "../../engine/events.ts";
import { formatImageReference, parseImageReference } from "../../engine/image-reference.ts";
import { isInstant, isName, isUid } from "../../store/row-document.ts";
import type { RowKind } from "../../store/row-reader.ts";
import type { Store } from "../../store/store.ts";
import { builtPrefix } from "./image-names.ts";
import { includesRegistry } from "./user-registries.ts";

export interface UserImagesOptions {
  store: Pick<Store, "all" | "write">;
  events: Pick<EngineEvents, "listen">;
  /** The daemon's uid: a user's own daemon does not restrict that user. */
  selfUid: number;
  /** References of local images that all users may use; one that ends with `*` matches by prefix. */
  shared: readonly string[];
  /** The only registries that users may name, in the notation of {@link includesRegistry}. */
  registries: readonly string[];
  /** References of the images that installed apps run, by app ID. */
  needs: () => Promise<ReadonlyMap<string, { readonly images: readonly string[] }>>;
  now: () => number;
}

interface UserImageRow {
  uid: number;
  reference: string;
  image_id: string;
  recorded_at: number;
}

export const userImageRows: RowKind<UserImageRow, UserImageRow> = {
  table: "user_images",
  columns: { uid: isUid, reference: isName, image_id: isName, recorded_at: isInstant },
  nameOf: ({ uid, reference }) => `image ${reference} of uid ${uid}`,
  remedy: () => "restart the apps that use it: svc asks the registry again",
  read: (row) => row,
};

interface UnrecordedAppRow {
  app_id: string;
  owner_uid: number;
}

export const unrecordedAppRows: RowKind<UnrecordedAppRow, UnrecordedAppRow> = {
  table: "apps_without_recorded_images",
  columns: { app_id: isName, owner_uid: isUid },
  nameOf: ({ app_id }) => `app "${app_id}" from before images were recorded`,
  remedy: () => "restart the daemon",
  read: (row) => row,
};

/** Records per user; the oldest are deleted first. */
const maxRecords = 1_000;

/** Resolves to the image ID of a reference, or `undefined` without such an image. */
type FindImage = (reference: string) => Promise<string | undefined>;

export class UserImages implements Disposable {
  readonly #options: UserImagesOptions;
  readonly #listening: Disposable;
  #recording: Promise<void> | undefined;

  constructor(options: UserImagesOptions) {
    this.#options = options;
    this.#listening = options.events.listen({
      onEvent: ({ type, action, id }) => {
        if (type === "image" && action === "delete") this.#forget(id);
      },
    });
  }

  [Symbol.dispose](): void {
    this.#listening[Symbol.dispose]();
  }

  /** Whether this user's apps may use only certain images. */
  restricts(uid: number): boolean {
    return uid !== 0 && uid !== this.#options.selfUid;
  }

  /** @throws SvcError `denied` if the user may not get images from this registry */
  requireRegistry(uid: number, reference: string): void {
    const { host } = parseImageReference(reference);
    if (!this.restricts(uid) || includesRegistry(this.#options.registries, host)) return;
    const message = `image ${reference} comes from the registry ${host}, which regular users may not use; root can add "${host}" to users_registries in the section [docker] of the configuration, or list a local image in shared_images there`;
    throw new SvcError("denied", message);
  }

  /** Whether the user may use the local image `imageId`, which `reference` currently names. */
  async allows(uid: number, reference: string, imageId: string, find: FindImage): Promise<boolean> {
    if (!this.restricts(uid)) return true;
    const name = fullName(reference);
    if (this.#isShared(name)) return true;
    await this.#recordEarlierOnce(find);
    const sql = "SELECT 1 FROM user_images WHERE uid = ? AND reference = ? AND image_id = ?";
    return this.#options.store.all(sql, uid, name, imageId).length > 0;
  }

  /** IDs of the images that svc pulled for the user under this name, newest first. */
  recorded(uid: number, reference: string): string[] {
    const sql =
      "SELECT image_id FROM user_images WHERE uid = ? AND reference = ? ORDER BY recorded_at DESC LIMIT 10";
    const rows = this.#options.store.all<{ image_id: string }>(sql, uid, fullName(reference));
    return rows.map(({ image_id: id }) => id);
  }

  /** Users for whom svc pulled an image, by its ID. */
  pulled(): ReadonlyMap<string, number[]> {
    const sql = "SELECT DISTINCT uid, image_id FROM user_images";
    const users = new Map<string, number[]>();
    for (const { uid, image_id: id } of this.#options.store.all<UserImageRow>(sql))
      users.set(id, [...(users.get(id) ?? []), uid]);
    return users;
  }

  /** Records that svc pulled the image for an app of the user. */
  async record(uid: number, reference: string, imageId: string): Promise<void> {
    if (!this.restricts(uid)) return;
    await this.#options.store.write([
      this.#insertion(uid, reference, imageId),
      {
        sql: `DELETE FROM user_images WHERE uid = ? AND recorded_at <
                (SELECT recorded_at FROM user_images WHERE uid = ? ORDER BY recorded_at DESC LIMIT 1 OFFSET ?)`,
        params: [uid, uid, maxRecords - 1],
      },
    ]);
  }

  /** Images of users' apps from registries that are not listed, those of an older svc included. */
  async unlisted(): Promise<UnlistedImage[]> {
    const { store, registries, needs } = this.#options;
    const apps = store.all<UnrecordedAppRow>("SELECT * FROM apps_without_recorded_images");
    const references = apps.length === 0 ? new Map<string, never>() : await needs();
    const unrecorded = apps.flatMap(({ app_id: appId, owner_uid: uid }) =>
      (references.get(appId)?.images ?? []).map((reference) => ({ uid, reference: fullName(reference) })),
    );
    return [
      ...unlistedImages(store, registries),
      ...unrecorded.filter((image) => isUnlisted(image, registries)),
    ];
  }

  #insertion(uid: number, reference: string, imageId: string) {
    return {
      sql: `INSERT INTO user_images (uid, reference, image_id, recorded_at) VALUES (?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET recorded_at = excluded.recorded_at`,
      params: [uid, fullName(reference), imageId, this.#options.now()],
    };
  }

  #isShared(name: string): boolean {
    return this.#options.shared.some((pattern) =>
      pattern.endsWith("*") ? name.startsWith(fullPrefix(pattern.slice(0, -1))) : name === fullName(pattern),
    );
  }

  /**
   * Records the images of apps that an older svc installed. This happens before any image is used, so that no app can
   * be changed to use other images first.
   */
  #recordEarlierOnce(find: FindImage): Promise<void> {
    const recording = (this.#recording ??= this.#recordEarlier(find));
    recording.catch(() => {
      if (this.#recording === recording) this.#recording = undefined;
    });
    return recording;
  }

  async #recordEarlier(find: FindImage): Promise<void> {
    const { store, needs } = this.#options;
    const apps = store.all<UnrecordedAppRow>("SELECT * FROM apps_without_recorded_images");
    if (apps.length === 0) return;
    const references = await needs();
    for (const { app_id: appId, owner_uid: uid } of apps) {
      const insertions = [];
      for (const reference of references.get(appId)?.images ?? []) {
        const id = await find(reference);
        if (id !== undefined) insertions.push(this.#insertion(uid, reference, id));
      }
      const sql = "DELETE FROM apps_without_recorded_images WHERE app_id = ?";
      await store.write([...insertions, { sql, params: [appId] }]);
    }
  }

  /** An image that was deleted and returns with the same ID must be confirmed again. */
  #forget(imageId: string): void {
    const { store } = this.#options;
    if (store.all("SELECT 1 FROM user_images WHERE image_id = ? LIMIT 1", imageId).length === 0) return;
    const statement = { sql: "DELETE FROM user_images WHERE image_id = ?", params: [imageId] };
    // A remaining record is deleted with the oldest ones.
    store.write([statement], { essential: true }).catch(() => undefined);
  }
}

export interface UnlistedImage {
  readonly uid: number;
  readonly reference: string;
}

/** Images that svc pulled for users who have apps, from registries that are not listed. Also for `svc doctor`. */
export function unlistedImages(store: Pick<Store, "all">, registries: readonly string[]): UnlistedImage[] {
  const sql = `SELECT DISTINCT uid, reference FROM user_images
     WHERE uid IN (SELECT owner_uid FROM apps) ORDER BY reference, uid`;
  return store.all<UnlistedImage>(sql).filter((image) => isUnlisted(image, registries));
}

function isUnlisted({ reference }: UnlistedImage, registries: readonly string[]): boolean {
  const isBuilt = reference.startsWith(builtPrefix);
  return !isBuilt && !includesRegistry(registries, parseImageReference(reference).host);
}

function fullName(reference: string): string {
  return formatImageReference(parseImageReference(reference));
}

/** The prefix of full names for a `prefix` such as `team/`. */
function fullPrefix(prefix: string): string {
  if (prefix === "") return "";
  return formatImageReference(parseImageReference(`${prefix}x`)).replace(/x(?::latest)?$/, "");
}
