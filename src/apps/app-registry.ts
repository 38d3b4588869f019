/** The installed apps as the database has them, kept in memory and read again when somebody wrote. */
import { isDeepStrictEqual } from "node:util";
import { notFound } from "../errors.ts";
import { noLog, type Log } from "../lib/log.ts";
import type { Store } from "../store/store.ts";
import { RowReader } from "../store/row-reader.ts";
import { appRows, type AppRecord, type AppRow } from "./app-record.ts";
import { OperationReader, type Operation, type OperationRow } from "./operations.ts";
import { standInOf } from "./unreadable-app.ts";

/** Who asks: the part of the transport's user context that the apps go by. */
export interface AppCaller {
  readonly uid: number;
  /** True: sees and manages everybody's apps. */
  readonly root: boolean;
  /** Who owns what is created. */
  readonly ownerUid: number;
}

export class AppRegistry implements Disposable {
  readonly #store: Store;
  readonly #appReader: RowReader<AppRow, AppRecord>;
  readonly #operationReader: OperationReader;
  readonly #subscription: Disposable;
  #apps = new Map<string, AppRecord>();
  #operations = new Map<string, Operation>();
  /** Of the table `apps`, as it was last read. */
  #version: number | undefined;
  #revision = 0;
  #stale = true;

  constructor(store: Store, log: Pick<Log, "error"> = noLog) {
    this.#store = store;
    this.#appReader = new RowReader(appRows, log);
    this.#operationReader = new OperationReader(log);
    this.#subscription = store.onChange(() => this.invalidate());
  }

  /** What is asked next sees what other processes have written by then; own writes are known when they are acknowledged. */
  invalidate(): void {
    this.#stale = true;
  }

  /** Grows when an app or an operation came, changed or went; a record or operation that did not stays the same object. */
  get revision(): number {
    this.#refresh();
    return this.#revision;
  }

  /** All apps, by id. */
  all(): AppRecord[] {
    this.#refresh();
    return [...this.#apps.values()];
  }

  /** The apps that the caller may see, by id. */
  visible(caller: Pick<AppCaller, "uid" | "root">): AppRecord[] {
    const apps = this.all();
    return caller.root ? apps : apps.filter((app) => app.ownerUid === caller.uid);
  }

  get(id: string): AppRecord | undefined {
    this.#refresh();
    return this.#apps.get(id);
  }

  /** @throws SvcError `not_found` for an app that is not there, or not the caller's. */
  find(id: string, caller: AppCaller): AppRecord {
    const app = this.get(id);
    if (app === undefined || !this.has(id, caller)) throw notFound("app", id);
    return app;
  }

  /** The app that an operation holds, as it is under its lock: what was read before may be older. */
  held({ kind, appId }: Operation): AppRecord {
    const app = this.get(appId);
    if (app === undefined) throw new Error(`operation ${kind} holds no app "${appId}"`);
    return app;
  }

  /** Whether there is such an app that the caller may see. */
  has(id: string, caller: AppCaller): boolean {
    const app = this.get(id);
    return app !== undefined && (caller.root || app.ownerUid === caller.uid);
  }

  /** The operation that holds the app. */
  operationOf(id: string): Operation | undefined {
    this.#refresh();
    return this.#operations.get(id);
  }

  /** Reads what changed: most commits, such as those of audit records, change no app. */
  #refresh(): void {
    if (!this.#stale) return;
    this.#stale = false;
    this.#refreshApps();
    const rows = this.#store.all<OperationRow>("SELECT * FROM operations");
    if (rows.length > 0 || this.#operations.size > 0) this.#takeOperations(rows);
  }

  /** Reads the row versions of all apps, and the rows of those that are new or written. */
  #refreshApps(): void {
    // Asked first: an app that is written in between is looked at once more and not missed.
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
    // The first time, and when most are new, one pass over all rows beats asking for each.
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
    return this.#appReader.read(row) ?? standInOf(row);
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }
}
