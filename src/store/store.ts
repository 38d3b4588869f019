/**
 * The daemon's state: one SQLite database that the daemon and the CLI share. Reads run on the calling thread, writes on
 * a separate thread. No transaction stays open across I/O.
 */
import { lstatSync } from "node:fs";
import { getSystemErrorMessage } from "node:util";
import { SvcError } from "../errors.ts";
import { ChangeWatch } from "./change-watch.ts";
import { inspectDatabase } from "./inspection.ts";
import { Maintenance } from "./maintenance.ts";
import type { Restoration, SqlValue, Statement, StatementResult } from "./messages.ts";
import { migrations as releasedMigrations } from "./migrations.ts";
import { isNewStore, prepareDatabase } from "./prepare.ts";
import { PresenceLock } from "./presence-lock.ts";
import { Reader } from "./reader.ts";
import { releaseReserve, isReserveMissing } from "./reserve.ts";
import { isSnapshotStale, snapshotAgeMs } from "./snapshot.ts";
import { diskFull, sqliteFailure, storeError } from "./sqlite-failure.ts";
import { secureStoreFiles, storeFiles, type StoreFiles } from "./store-files.ts";
import { deadlineIn, WriteQueue } from "./write-queue.ts";
import type { Log } from "../lib/log.ts";

export type { Restoration, SqlValue, Statement, StatementResult } from "./messages.ts";
export { StoreConflict } from "./write-queue.ts";

export interface StoreOptions {
  /** Absolute; created if missing (0711 for root, else 0700). */
  dir: string;
  /** Used in the names of quarantined files. */
  clock?: { now(): number };
  log?: Pick<Log, "warn">;
  /** The entry point of the worker threads, if the sources were bundled. */
  workerUrl?: URL;
  /** How long a write may wait, in milliseconds. Default: 10,000. */
  writeTimeoutMs?: number;
  /** How many writes may wait; essential ones may be twice as many. Default: 1,024. */
  writeQueueLimit?: number;
  /** Interval of snapshot updates in milliseconds; nothing happens if nothing was written. Default: 5 minutes. */
  housekeepingIntervalMs?: number;
  /** Receives the duration of each write and whether it was stored. */
  onWrite?: (durationMs: number, isStored: boolean) => void;
  /** The steps of the schema. Only tests change them. */
  migrations?: readonly string[];
  /** The inspection that {@link inspectAhead} has started. */
  ahead?: InspectionAhead | undefined;
  /**
   * Opens the store before that inspection has finished, for a caller that does nothing lasting until then. The caller
   * must open the store again unless the result is that everything is sound or something was already restored. Writes
   * wait for the result.
   */
  trustsMeanwhile?: boolean;
}

export interface WriteOptions {
  /** For writes that free space or record what has happened (stop, remove, prune, states): they work on a full disk, too. */
  essential?: boolean;
  /** How long the write may wait, in milliseconds. */
  timeoutMs?: number;
}

/** A larger database is inspected on a separate thread: this size takes about 10 ms. */
const inlineInspectionBytes = 8 * 1024 * 1024;
const lockWaitMs = 5_000;
const maintenanceTimeoutMs = 10 * 60_000;
const batchLimit = 256;
/** Milliseconds for the daemon to start before the first housekeeping. */
const firstHousekeepingMs = 10_000;

/** A database that a thread is already reading. */
export interface InspectionAhead {
  /**
   * Whether the database is sound, except for an index that can be rebuilt. Undefined: the inspection failed. Never
   * rejects.
   */
  readonly isSound: Promise<boolean | undefined>;
  /** The problem of that index before it was rebuilt. Rejects if it could not be rebuilt. */
  readonly index: Promise<string | undefined>;
}

/**
 * Starts reading a large database, so that the inspection has finished when the rest of the daemon is loaded. Errors
 * are reported when the store is opened.
 * @param workerUrl as in {@link StoreOptions}
 */
export async function inspectAhead(dir: string, workerUrl: URL): Promise<InspectionAhead | undefined> {
  const files = storeFiles(dir);
  try {
    if (lstatSync(files.database).size <= inlineInspectionBytes) return undefined;
    await secureStoreFiles(files);
  } catch {
    return undefined;
  }
  const maintenance = new Maintenance(workerUrl, dir, releasedMigrations, maintenanceTimeoutMs);
  const { isSound, index } = inspect(maintenance);
  return { isSound: isSound.catch(() => undefined), index };
}

/**
 * Opens the store; creates, restores or migrates it if needed. See prepare.ts.
 * @throws SvcError `data_loss` for a damaged database without a good snapshot; `not_possible` for a newer database or
 *   for files of another user; `unavailable` if another process blocks a repair
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { dir, migrations = releasedMigrations, clock = Date } = options;
  const workerUrl = options.workerUrl ?? new URL("./worker.ts", import.meta.url);
  const files = storeFiles(dir);
  const maintenance = new Maintenance(workerUrl, dir, migrations, maintenanceTimeoutMs);
  const lock = await lockStore(files);
  try {
    await lock.share();
    let restoration: Restoration | undefined;
    if (!(await isReady(files, migrations.length, maintenance, options))) {
      await lock.lockExclusively();
      restoration = await prepare(files, migrations, clock.now(), maintenance);
      await lock.share();
    }
    if (restoration !== undefined) {
      options.log?.warn(restoration, "the database was damaged and its last good snapshot was restored");
    }
    return new Store(
      files,
      lock,
      withReserve(files, () => new Reader(files.database)),
      maintenance,
      workerUrl,
      restoration,
      options,
    );
  } catch (error) {
    lock[Symbol.dispose]();
    throw storeError(error);
  }
}

async function lockStore(files: StoreFiles): Promise<PresenceLock> {
  try {
    await secureStoreFiles(files);
    return new PresenceLock(files.lock, lockWaitMs);
  } catch (error) {
    throw unwritable(files.dir, error);
  }
}

/** The system's error about a directory in which nothing can be created, as a sentence. */
function unwritable(dir: string, error: unknown): unknown {
  const { code, errno } = error as NodeJS.ErrnoException;
  if (errno === undefined) return error;
  if (code === "ENOSPC") return diskFull(error);
  const message = `the store ${dir} cannot be used: ${getSystemErrorMessage(errno)}`;
  return new SvcError("unavailable", message, { cause: error });
}

/** Whether the database is sound and has the current schema. */
async function isReady(
  files: StoreFiles,
  version: number,
  maintenance: Maintenance,
  { ahead, trustsMeanwhile = false, log }: StoreOptions,
): Promise<boolean> {
  const found = withReserve(files, () =>
    inspectDatabase(files.database, version, { maxBytes: inlineInspectionBytes }),
  );
  if (found.condition !== "sound" || found.version !== version) return false;
  if (lstatSync(files.database).size <= inlineInspectionBytes) return true;
  if (ahead !== undefined && trustsMeanwhile) return true;
  const verdict = (await ahead?.isSound) ?? (await isDatabaseSound(inspect(maintenance), log));
  return verdict === true;
}

/**
 * A new database is created on this thread: that takes a third of the time of starting a thread, and no client is
 * served yet.
 */
async function prepare(
  files: StoreFiles,
  migrations: readonly string[],
  nowMs: number,
  maintenance: Maintenance,
): Promise<Restoration | undefined> {
  if (isNewStore(files)) return prepareDatabase(files, migrations, nowMs);
  const reply = await maintenance.run({ kind: "prepare", nowMs });
  return reply.kind === "prepared" ? reply.restoration : undefined;
}

/** Starts inspecting a database on a thread. */
function inspect(maintenance: Maintenance): InspectionAhead {
  const answers = maintenance.answers({ kind: "inspect" });
  const [inspected, compared] = [answers.next(), answers.next()];
  const index = compared.then(({ value }) => (value?.kind === "compared" ? value.repaired : undefined));
  index.catch(() => undefined);
  return { isSound: inspected.then(({ value }) => value?.kind === "inspected" && !value.corrupt), index };
}

/** Whether everything is sound, including the index after it was compared. The result of the comparison is logged. */
async function isDatabaseSound(
  { isSound, index }: InspectionAhead,
  log: StoreOptions["log"],
): Promise<boolean | undefined> {
  if ((await isSound) !== true) return isSound;
  try {
    const problem = await index;
    if (problem !== undefined)
      log?.warn({ problem }, "rebuilt the index of the audit log, which did not match its records");
  } catch (error) {
    // SQLite reports a write that meets a wrong entry, and undoes it.
    log?.warn({ err: error }, "failed to check the index of the audit log; the next start tries again");
  }
  return true;
}

/** Opening needs some KiB of disk space for the log's index; on a full disk the reserve provides it. */
function withReserve<T>(files: StoreFiles, open: () => T): T {
  try {
    return open();
  } catch (error) {
    if (sqliteFailure(error) !== "full") throw error;
    releaseReserve(files);
    return open();
  }
}

/** Created by {@link openStore}. */
export class Store implements AsyncDisposable {
  /** The restoration when the store was opened, if any; the caller should report it. */
  readonly restoration: Restoration | undefined;
  readonly #files: StoreFiles;
  readonly #lock: PresenceLock;
  readonly #reader: Reader;
  readonly #writes: WriteQueue;
  readonly #changes: ChangeWatch;
  readonly #maintenance: Maintenance;
  readonly #log: Pick<Log, "warn"> | undefined;
  readonly #onWrite: StoreOptions["onWrite"];
  readonly #writeTimeoutMs: number;
  readonly #housekeepingIntervalMs: number;
  readonly #timers: NodeJS.Timeout[];
  #housekeeping: Promise<void> | undefined;
  /** Pending until it is known whether the database is sound. */
  #inspection: Promise<boolean | undefined> | undefined;
  #closing: Promise<void> | undefined;

  constructor(
    files: StoreFiles,
    lock: PresenceLock,
    reader: Reader,
    maintenance: Maintenance,
    workerUrl: URL,
    restoration: Restoration | undefined,
    options: StoreOptions,
  ) {
    this.restoration = restoration;
    this.#files = files;
    this.#lock = lock;
    this.#reader = reader;
    this.#maintenance = maintenance;
    this.#log = options.log;
    this.#onWrite = options.onWrite;
    this.#writeTimeoutMs = options.writeTimeoutMs ?? 10_000;
    // A database that was restored in the meantime is not the one that was read ahead.
    if (options.trustsMeanwhile === true && restoration === undefined) {
      this.#inspection = options.ahead && isDatabaseSound(options.ahead, options.log);
      void this.#inspection?.then((isSound) => {
        if (isSound === true) this.#inspection = undefined;
      });
    }
    this.#changes = new ChangeWatch({
      dataVersion: () => reader.dataVersion(),
      onError: (error) => this.#log?.warn({ err: error }, "a listener to the store failed"),
    });
    this.#writes = new WriteQueue({
      workerUrl,
      dir: files.dir,
      limit: options.writeQueueLimit ?? 1_024,
      batchLimit,
      onCommit: () => this.#changes.notify(),
    });
    const intervalMs = options.housekeepingIntervalMs ?? 5 * 60_000;
    this.#housekeepingIntervalMs = intervalMs;
    const housekeep = (): void => void this.#housekeepQuietly();
    this.#timers = [
      setTimeout(housekeep, Math.min(firstHousekeepingMs, intervalMs)).unref(),
      setInterval(housekeep, intervalMs).unref(),
    ];
  }

  /**
   * The first row that `sql` returns. Blocks the calling thread, so use only small, indexed queries.
   * @throws SvcError `data_loss` for a damaged database
   */
  // The rows' type is the caller's knowledge of its own SQL.
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
  get<T>(sql: string, ...params: SqlValue[]): T | undefined {
    return this.#reader.get(sql, params) as T | undefined;
  }

  /** All rows that `sql` returns; otherwise like `get`. */
  all<T>(sql: string, ...params: SqlValue[]): T[] {
    return this.#reader.all(sql, params) as T[];
  }

  /**
   * Commits the statements together; resolves when they are durable, with one result each. On an error nothing is
   * stored. Writes of one process keep their order.
   * @throws StoreConflict if a statement's `changes` or a constraint is violated
   * @throws SvcError `disk_full`; `too_many` writes wait; `unavailable` (the database was busy until the timeout);
   *   `internal`
   */
  async write(statements: readonly Statement[], options: WriteOptions = {}): Promise<StatementResult[]> {
    if (this.#closing !== undefined) {
      throw new SvcError("unavailable", "svc is shutting down");
    }
    const { essential = false, timeoutMs = this.#writeTimeoutMs } = options;
    const startMs = performance.now();
    let isStored = false;
    try {
      if (this.#inspection !== undefined && (await this.#inspection) !== true) {
        throw new SvcError(
          "unavailable",
          "the database is damaged and rejects writes; restart svc to restore the newest intact copy",
        );
      }
      const results = await this.#writes.push({ statements, essential, deadlineMs: deadlineIn(timeoutMs) });
      isStored = true;
      return results;
    } finally {
      this.#onWrite?.(performance.now() - startMs, isStored);
    }
  }

  /**
   * Calls `listener` after commits: at once after commits of this process, within a second after those of others.
   * Several commits may cause one call.
   */
  onChange(listener: () => void): Disposable {
    return this.#changes.listen(listener);
  }

  /**
   * Updates the snapshot with everything written before the call, and creates the reserve again if there is space. Also
   * runs periodically.
   */
  async housekeep(): Promise<void> {
    // A running one may have read the database before the caller's last write.
    await this.#housekeeping?.catch(() => undefined);
    if (!isSnapshotStale(this.#files) && !isReserveMissing(this.#files)) return;
    this.#housekeeping ??= this.#maintenance
      .run({ kind: "housekeep" })
      .then(() => undefined)
      .finally(() => (this.#housekeeping = undefined));
    await this.#housekeeping;
  }

  async #housekeepQuietly(): Promise<void> {
    try {
      await this.housekeep();
    } catch (error) {
      this.#log?.warn({ err: error }, "failed to update the store's snapshot or reserve; trying again later");
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#changes[Symbol.dispose]();
    // A short-lived command has no timer for its snapshots.
    if (snapshotAgeMs(this.#files) > this.#housekeepingIntervalMs) await this.#housekeepQuietly();
    // Another waiter may have started housekeeping again.
    while (this.#housekeeping !== undefined) await this.#housekeeping.catch(() => undefined);
    // Closed before the writer, so that the writer is the last connection and folds the log into the database.
    this.#reader[Symbol.dispose]();
    await this.#writes[Symbol.asyncDispose]();
    this.#lock[Symbol.dispose]();
  }
}
