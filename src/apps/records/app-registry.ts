/** The installed apps of the database, cached in memory and reloaded after writes. */
import { isDeepStrictEqual } from "node:util";
import { notFound } from "../../errors.ts";
import { noLog, type Log } from "../../lib/log.ts";
import type { Store } from "../../store/store.ts";
import { RowReader } from "../../store/row-reader.ts";
import { appRows, type AppRecord, type AppRow } from "./app-record.ts";
import { OperationReader, type Operation, type OperationRow } from "../lifecycle/operations.ts";
import { placeholderOf } from "./unreadable-app.ts";

/** The caller: the part of the user context that apps need. */
export interface AppCaller {
  readonly uid: number;
  /** True: may see and manage the apps of all users. */
  readonly root: boolean;
  /** Owner of what is created. */
  readonly ownerUid: number;
}

export class AppRegistry implements Disposable {
  readonly #store: Store;
  readonly #appReader: RowReader<AppRow, AppRecord>;
  readonly #operationReader: OperationReader;
  readonly #subscription: Disposable;
  #apps = new Map<string, AppRecord>();
  #operations = new Map<string, Operation>();
  /** Version of the table `apps` at the last read. */
  #version: number | undefined;
  #revision = 0;
  #stale = true;

  constructor(store: Store, log: Pick<Log, "error"> = noLog) {
    this.#store = store;
    this.#appReader = new RowReader(appRows, log);
    this.#operationReader = new OperationReader(log);
    this.#subscription = store.onChange(() => this.invalidate());
  }

  /** Makes the next read include writes of other processes. Writes of this process are visible when they are acknowledged. */
  invalidate(): void {
    this.#stale = true;
  }

  /** Increases when an app or operation was added, changed or removed. Unchanged records and operations stay the same objects. */
  get revision(): number {
    this.#refresh();
    return this.#revision;
  }

  /** All apps, sorted by ID. */
  all(): AppRecord[] {
    this.#refresh();
    return [...this.#apps.values()];
  }

  /** The apps that the caller may see, sorted by ID. */
  visible(caller: Pick<AppCaller, "uid" | "root">): AppRecord[] {
    const apps = this.all();
    return caller.root ? apps : apps.filter((app) => app.ownerUid === caller.uid);
  }

  get(id: string): AppRecord | undefined {
    this.#refresh();
    return this.#apps.get(id);
  }

  /** @throws SvcError `not_found` if there is no such app, or the caller may not see it. */
  find(id: string, caller: AppCaller): AppRecord {
    const app = this.get(id);
    if (app === undefined || !this.has(id, caller)) throw notFound("app", id);
    return app;
  }

  /** The app of an operation, read under its lock; an earlier read may be outdated. */
  lockedApp({ kind, appId }: Operation): AppRecord {
    const app = this.get(appId);
    if (app === undefined) throw new Error(`operation ${kind} holds no app "${appId}"`);
    return app;
  }

  /** Whether there is such an app that the caller may see. */
  has(id: string, caller: AppCaller): boolean {
    const app = this.get(id);
    return app !== undefined && (caller.root || app.ownerUid === caller.uid);
  }

  /** The running operation of the app. */
  operationOf(id: string): Operation | undefined {
    this.#refresh();
    return this.#operations.get(id);
  }

  /** Reads changed rows. Most commits, such as audit records, do not change an app. */
  #refresh(): void {
    if (!this.#stale) return;
    this.#stale = false;
    this.#refreshApps();
    const rows = this.#store.all<OperationRow>("SELECT * FROM operations");
    if (rows.length > 0 || this.#operations.size > 0) this.#takeOperations(rows);
  }

  /** Reads the row versions of all apps, and the rows of new and changed ones. */
  #refreshApps(): void {
    // Read first, so that an app that is written in between is read again and not missed.
    const version = this.#store.get<{ version: number }>("SELECT version FROM apps_version")?.version;
    if (version === this.#version) return;
    const known = this.#apps;
    const versions = this.#store.all<{ id: string; updated_at: number }>(
      "SELECT id, updated_at FROM apps ORDER BY id",
    );
    const changed = versions.filter(({ id, updated_at }) => known.get(id)?.rowVersion !== updated_at);
    if (changed.length > 0 || versions.length !== known.size) {
      this.#apps = this.#readApps(versions, new Set(changed.map(({ id }) => id)));
      this.#revision++;
    }
    this.#version = version;
  }

  #readApps(versions: readonly { id: string }[], changedIds: ReadonlySet<string>): Map<string, AppRecord> {
    const fresh = new Map<string, AppRecord>();
    // At first, and if most rows are new, one pass over all rows is faster than single reads.
    if (changedIds.size > versions.length / 2) {
      for (const row of this.#store.all<AppRow>("SELECT * FROM apps ORDER BY id")) {
        fresh.set(row.id, this.#readRow(row));
      }
      return fresh;
    }
    for (const { id } of versions) {
      const record = changedIds.has(id) ? this.#read(id) : this.#apps.get(id);
      if (record !== undefined) fresh.set(id, record);
    }
    return fresh;
  }

  #takeOperations(rows: readonly OperationRow[]): void {
    const known = this.#operations;
    const fresh = new Map<string, Operation>();
    for (const row of rows) {
      const [before, now] = [known.get(row.app_id), this.#operationReader.read(row)];
      fresh.set(row.app_id, before !== undefined && isDeepStrictEqual(before, now) ? before : now);
    }
    const isSame = fresh.size === known.size && [...fresh].every(([id, now]) => known.get(id) === now);
    if (isSame) return;
    this.#operations = fresh;
    this.#revision++;
  }

  #read(id: string): AppRecord | undefined {
    const row = this.#store.get<AppRow>("SELECT * FROM apps WHERE id = ?", id);
    return row === undefined ? undefined : this.#readRow(row);
  }

  #readRow(row: AppRow): AppRecord {
    return this.#appReader.read(row) ?? placeholderOf(row);
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }
}
