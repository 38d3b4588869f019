/** The store's records of archives that it created, and of verified or restored archives. */
import type { Log } from "../../lib/log.ts";
import { readExecutor, type Executor } from "../../store/executors.ts";
import { isBit, isInstant, isName, isText, orNull } from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Store, Statement } from "../../store/store.ts";
import type { PolicyRow } from "../policies/backup-states.ts";

export interface ArchiveRef {
  storage: string;
  appId: string;
  name: string;
}

export interface CatalogedArchive extends ArchiveRef {
  /** Whether it is complete on its storage; else its upload was announced, but not confirmed. */
  isComplete: boolean;
  verifiedAtMs: number | undefined;
  restoredAtMs: number | undefined;
  /** The process that uploads the archive. */
  executor: Executor | undefined;
}

interface ArchiveRow {
  storage: string;
  name: string;
  app_id: string;
  is_whole: number;
  executor: string | null;
  footer_sha256: string | null;
  verified_at: number | null;
  restored_at: number | null;
}

export const archiveRows: RowKind<ArchiveRow, CatalogedArchive> = {
  table: "backup_archives",
  columns: {
    ...{ storage: isName, name: isName, app_id: isName, is_whole: isBit, executor: orNull(isText) },
    ...{ footer_sha256: orNull(isText), verified_at: orNull(isInstant), restored_at: orNull(isInstant) },
  },
  nameOf: ({ storage, name }) => `archive "${name}" on storage "${storage}"`,
  remedy: ({ storage, name, app_id, is_whole }) =>
    is_whole === 1
      ? `svc backup verify ${app_id} ${name} --storage ${storage} --deep records it again`
      : "restart the daemon, which checks whether it exists",
  read: ({ storage, name, app_id, is_whole, verified_at, restored_at, executor }) => ({
    ...{ storage, name, appId: app_id },
    isComplete: is_whole === 1,
    verifiedAtMs: verified_at ?? undefined,
    restoredAtMs: restored_at ?? undefined,
    executor: executor === null ? undefined : readExecutor(executor),
  }),
};

/** A placeholder: not verified, and not being uploaded. */
function placeholderOf({ storage, name, app_id, is_whole }: ArchiveRow): CatalogedArchive {
  const unknown = { verifiedAtMs: undefined, restoredAtMs: undefined, executor: undefined };
  return { storage, name, appId: app_id, isComplete: is_whole === 1, ...unknown };
}

export class ArchiveCatalog {
  readonly #store: Store;
  readonly #executor: Executor;
  readonly #now: () => number;
  readonly #onWrite: () => void;
  readonly #reader: RowReader<ArchiveRow, CatalogedArchive>;

  /** @param onWrite called after each change */
  constructor(
    store: Store,
    executor: Executor,
    now: () => number,
    onWrite: () => void,
    log?: Pick<Log, "error">,
  ) {
    this.#reader = new RowReader(archiveRows, log);
    this.#store = store;
    this.#executor = executor;
    this.#now = now;
    this.#onWrite = onWrite;
  }

  /** Archives that may be incomplete. */
  unconfirmed(): CatalogedArchive[] {
    return this.#read("WHERE is_whole <> 1");
  }

  /** Archives of one app or of all, by storage and name. */
  archives(appId?: string): Map<string, CatalogedArchive> {
    const archives = appId === undefined ? this.#read("") : this.#read("WHERE app_id = ?", appId);
    return new Map(archives.map((archive) => [keyOf(archive), archive]));
  }

  #read(where: string, ...params: string[]): CatalogedArchive[] {
    const rows = this.#store.all<ArchiveRow>(`SELECT * FROM backup_archives ${where}`, ...params);
    return rows.map((row) => this.#reader.read(row) ?? placeholderOf(row));
  }

  /** Whether this store has created this archive and still lists it. @param digest see `footerDigest` */
  hasCreated(digest: string): boolean {
    const sql = "SELECT 1 FROM backup_archives WHERE footer_sha256 = ? LIMIT 1";
    return this.#store.get(sql, digest) !== undefined;
  }

  /** The digest of the archive that this store stored there; undefined if it is not known. See `footerDigest`. */
  storedDigest({ storage, name }: Omit<ArchiveRef, "appId">): string | undefined {
    const sql = "SELECT footer_sha256 FROM backup_archives WHERE storage = ? AND name = ?";
    return this.#store.get<Pick<ArchiveRow, "footer_sha256">>(sql, storage, name)?.footer_sha256 ?? undefined;
  }

  /**
   * Call before uploading its first byte.
   * @param digest see `footerDigest`; null for an archive from another host
   */
  async announce({ storage, appId, name }: ArchiveRef, digest: string | null): Promise<void> {
    await this.#write({
      sql: `INSERT INTO backup_archives (storage, name, app_id, is_whole, executor, footer_sha256)
            VALUES (?, ?, ?, 0, ?, ?)`,
      params: [storage, name, appId, JSON.stringify(this.#executor), digest],
    });
  }

  /** Records that it is complete on its storage. */
  async confirm({ storage, name }: Omit<ArchiveRef, "appId">): Promise<void> {
    await this.#write({
      sql: "UPDATE backup_archives SET is_whole = 1, executor = NULL WHERE storage = ? AND name = ?",
      params: [storage, name],
    });
  }

  /** Records the storages of an app's newest archive. */
  async recordBackup(appId: string, storages: readonly string[]): Promise<void> {
    await this.#note(appId, { last_backup_at: this.#now(), last_storages: JSON.stringify(storages) });
  }

  /** @param policy as JSON; null: the package's */
  async setPolicy(appId: string, policy: string | null): Promise<void> {
    await this.#note(appId, { policy, set_at: this.#now(), last_error: null });
  }

  /** Records when a scheduled backup was last started; null: never. */
  async recordAttempt(appId: string, atMs: number | null): Promise<void> {
    await this.#note(appId, { tried_at: atMs });
  }

  /** Records the error of the last scheduled backup; null for none. */
  async setPolicyError(appId: string, error: string | null): Promise<void> {
    await this.#note(appId, { last_error: error });
  }

  /** Records that its upload ended with an unknown result, which is checked later. */
  async leave({ storage, name }: Omit<ArchiveRef, "appId">): Promise<void> {
    await this.#write({
      sql: "UPDATE backup_archives SET executor = NULL WHERE storage = ? AND name = ?",
      params: [storage, name],
    });
  }

  async forget({ storage, name }: Omit<ArchiveRef, "appId">): Promise<void> {
    await this.#write({
      sql: "DELETE FROM backup_archives WHERE storage = ? AND name = ?",
      params: [storage, name],
    });
  }

  /**
   * Records a successful verification. Archives that this store did not create say nothing about the app's backups.
   * @param archive its owner, because another user's app may have the same ID, and its digest; see `footerDigest`
   * @param restored whether it was also restored
   */
  async recordVerified(
    { storage, appId, name }: ArchiveRef,
    { ownerUid, digest }: { readonly ownerUid: number; readonly digest: string },
    restored: boolean,
  ): Promise<void> {
    const atMs = this.#now();
    // Archives from other hosts have no row, and are not removed here.
    await this.#write({
      sql: `UPDATE backup_archives SET verified_at = ?, restored_at = coalesce(?, restored_at), executor = NULL
            WHERE storage = ? AND name = ?`,
      params: [atMs, restored ? atMs : null, storage, name],
    });
    if (restored && this.hasCreated(digest)) await this.#note(appId, { last_restored_at: atMs }, ownerUid);
  }

  /** Stores values about an installed app's backups. @param ownerUid only if the app belongs to this user */
  async #note(
    appId: string,
    columns: Partial<Omit<PolicyRow, "app_id">>,
    ownerUid: number | null = null,
  ): Promise<void> {
    const names = Object.keys(columns);
    await this.#write({
      sql: `INSERT INTO backup_policies (app_id, ${names.join(", ")})
            SELECT id, ${names.map(() => "?").join(", ")} FROM apps WHERE id = ? AND owner_uid = coalesce(?, owner_uid)
            ON CONFLICT (app_id) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join(", ")}`,
      params: [...Object.values(columns), appId, ownerUid],
    });
  }

  async #write(...statements: Statement[]): Promise<void> {
    await this.#store.write(statements, { essential: true });
    this.#onWrite();
  }
}

export function keyOf({ storage, name }: { storage: string; name: string }): string {
  return `${storage}/${name}`;
}
