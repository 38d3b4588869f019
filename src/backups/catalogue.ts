/** What this store knows of the archives it has made, and of those that were verified or restored. */
import type { Log } from "../lib/log.ts";
import { readExecutor, type Executor } from "../store/executors.ts";
import { isBit, isInstant, isName, isText, orNull } from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import type { Store, Statement } from "../store/store.ts";
import type { PolicyRow } from "./backup-states.ts";

export interface ArchiveRef {
  storage: string;
  appId: string;
  name: string;
}

export interface CataloguedArchive extends ArchiveRef {
  /** Whether it is known to be whole on its storage; else it was announced, and nobody has confirmed its upload. */
  isWhole: boolean;
  verifiedAtMs: number | undefined;
  restoredAtMs: number | undefined;
  /** Who uploads it, or did. */
  executor: Executor | undefined;
}

interface ArchiveRow {
  storage: string;
  name: string;
  app_id: string;
  is_whole: number;
  executor: string | null;
  verified_at: number | null;
  restored_at: number | null;
}

export const archiveRows: RowKind<ArchiveRow, CataloguedArchive> = {
  table: "backup_archives",
  columns: {
    ...{ storage: isName, name: isName, app_id: isName, is_whole: isBit, executor: orNull(isText) },
    ...{ verified_at: orNull(isInstant), restored_at: orNull(isInstant) },
  },
  nameOf: ({ storage, name }) => `archive "${name}" on storage "${storage}"`,
  remedy: ({ storage, name, app_id, is_whole }) =>
    is_whole === 1
      ? `svc backup verify ${app_id} ${name} --storage ${storage} --deep says anew what it is`
      : "restart the daemon, which looks whether it is there",
  read: ({ storage, name, app_id, is_whole, verified_at, restored_at, executor }) => ({
    ...{ storage, name, appId: app_id },
    isWhole: is_whole === 1,
    verifiedAtMs: verified_at ?? undefined,
    restoredAtMs: restored_at ?? undefined,
    executor: executor === null ? undefined : readExecutor(executor),
  }),
};

/** It was not proven, and nobody uploads it any more. */
function standInOf({ storage, name, app_id, is_whole }: ArchiveRow): CataloguedArchive {
  const unknown = { verifiedAtMs: undefined, restoredAtMs: undefined, executor: undefined };
  return { storage, name, appId: app_id, isWhole: is_whole === 1, ...unknown };
}

export class Catalogue {
  readonly #store: Store;
  readonly #executor: Executor;
  readonly #now: () => number;
  readonly #onWrite: () => void;
  readonly #reader: RowReader<ArchiveRow, CataloguedArchive>;

  /** @param onWrite called when something is another than before */
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

  /** Those of which it is not known whether they are whole. */
  announced(): CataloguedArchive[] {
    return this.#read("WHERE is_whole <> 1");
  }

  /** Of one app or of all, by storage and name. */
  archives(appId?: string): Map<string, CataloguedArchive> {
    const archives = appId === undefined ? this.#read("") : this.#read("WHERE app_id = ?", appId);
    return new Map(archives.map((archive) => [keyOf(archive), archive]));
  }

  #read(where: string, ...params: string[]): CataloguedArchive[] {
    const rows = this.#store.all<ArchiveRow>(`SELECT * FROM backup_archives ${where}`, ...params);
    return rows.map((row) => this.#reader.read(row) ?? standInOf(row));
  }

  /** Before the first byte of it goes to its storage. */
  async announce({ storage, appId, name }: ArchiveRef): Promise<void> {
    await this.#write({
      sql: "INSERT INTO backup_archives (storage, name, app_id, is_whole, executor) VALUES (?, ?, ?, 0, ?)",
      params: [storage, name, appId, JSON.stringify(this.#executor)],
    });
  }

  /** It is whole where it is meant to be. */
  async confirm({ storage, name }: Omit<ArchiveRef, "appId">): Promise<void> {
    await this.#write({
      sql: "UPDATE backup_archives SET is_whole = 1, executor = NULL WHERE storage = ? AND name = ?",
      params: [storage, name],
    });
  }

  /** The newest archive of an app is on these storages. */
  async backedUp(appId: string, storages: readonly string[]): Promise<void> {
    await this.#note(appId, { last_backup_at: this.#now(), last_storages: JSON.stringify(storages) });
  }

  /** @param policy as JSON; null: the package's */
  async setPolicy(appId: string, policy: string | null): Promise<void> {
    await this.#note(appId, { policy, set_at: this.#now(), last_error: null });
  }

  /** Since when nothing that its policy wants was missed: it is being made. Null: it never was. */
  async tried(appId: string, atMs: number | null): Promise<void> {
    await this.#note(appId, { tried_at: atMs });
  }

  /** What went wrong with the last backup that was made by itself; null when nothing did. */
  async setPolicyError(appId: string, error: string | null): Promise<void> {
    await this.#note(appId, { last_error: error });
  }

  /** Nobody uploads it any more, and what became of it is not known: that is looked after later. */
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

  /** It was read whole and found right. @param restored it was laid out, too */
  async proven({ storage, appId, name }: ArchiveRef, restored: boolean): Promise<void> {
    const atMs = this.#now();
    // One from elsewhere has no row: it is none of ours to remove.
    await this.#write({
      sql: `UPDATE backup_archives SET verified_at = ?, restored_at = coalesce(?, restored_at), executor = NULL
            WHERE storage = ? AND name = ?`,
      params: [atMs, restored ? atMs : null, storage, name],
    });
    if (restored) await this.#note(appId, { last_restored_at: atMs });
  }

  /** Of an app that is there: what is known of its backups beside its archives. */
  async #note(appId: string, columns: Partial<Omit<PolicyRow, "app_id">>): Promise<void> {
    const names = Object.keys(columns);
    await this.#write({
      sql: `INSERT INTO backup_policies (app_id, ${names.join(", ")})
            SELECT id, ${names.map(() => "?").join(", ")} FROM apps WHERE id = ?
            ON CONFLICT (app_id) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join(", ")}`,
      params: [...Object.values(columns), appId],
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
