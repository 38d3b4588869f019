/**
 * The daemon's state (D25): one SQLite database that the daemon and the CLI share. Reads run on the calling thread,
 * writes on one thread of their own; no transaction is open across I/O.
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
import { giveUpReserve, isReserveMissing } from "./reserve.ts";
import { isSnapshotStale, snapshotAgeMs } from "./snapshot.ts";
import { diskFull, sqliteFailure, storeError } from "./sqlite-failure.ts";
import { secureStoreFiles, storeFiles, type StoreFiles } from "./store-files.ts";
import { deadlineIn, WriteQueue } from "./write-queue.ts";
import type { Log } from "../lib/log.ts";

export type { Restoration, SqlValue, Statement, StatementResult } from "./messages.ts";
export { StoreConflict } from "./write-queue.ts";

export interface StoreOptions {
  /** Absolute; made if missing (0711 for root, else 0700). */
  dir: string;
  /** For the names of quarantined files. */
  clock?: { now(): number };
  log?: Pick<Log, "warn">;
  /** The entry point of the worker threads, where the sources were bundled. */
  workerUrl?: URL;
  /** How long a write may wait for its turn, in milliseconds; by default 10,000. */
  writeTimeoutMs?: number;
  /** How many writes may wait; essential ones may be twice as many. By default 1,024. */
  writeQueueLimit?: number;
  /** How often commits of other processes are looked for while somebody listens, in milliseconds; by default 250. */
  changePollMs?: number;
  /** How often the snapshot is brought up to date if need be, in milliseconds; by default 5 minutes. */
  housekeepingIntervalMs?: number;
  /** Hears of each write how long it took and whether it was kept. */
  onWrite?: (durationMs: number, isKept: boolean) => void;
  /** The steps of the schema; other than the released ones in tests only. */
  migrations?: readonly string[];
  /** What {@link inspectAhead} has begun. */
  ahead?: InspectionAhead | undefined;
  /**
   * Opens before that has ended, for who does nothing lasting until it has, and opens the store anew unless it says that all is
   * sound or something was restored already. Writes wait for it.
   */
  trustsMeanwhile?: boolean;
}

export interface WriteOptions {
  /** For what frees room or records what has happened (stop, remove, prune, states): works on a full disk too. */
  essential?: boolean;
  /** How long to wait for its turn, in milliseconds. */
  timeoutMs?: number;
}

/** A larger database is inspected in a thread of its own instead: this much takes some 10 ms. */
const inlineInspectionBytes = 8 * 1024 * 1024;
const lockWaitMs = 5_000;
const maintenanceTimeoutMs = 10 * 60_000;
const batchLimit = 256;
/** Time for the daemon to come up before the first housekeeping. */
const firstHousekeepingMs = 10_000;

/** Of a database that a thread reads already. */
export interface InspectionAhead {
  /** Whether it is sound, but for an index that can be made again. Undefined: nothing came of it. Never rejects. */
  readonly isSound: Promise<boolean | undefined>;
  /** What was wrong with that index until it was made again. Rejects with why it could not be, for whoever listens. */
  readonly index: Promise<string | undefined>;
}

/**
 * Begins to read a large database, so that it is done with when the rest of the daemon has loaded. What is wrong shows when the
 * store is opened.
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
 * Opens the store, making, restoring or migrating it as need be; see prepare.ts.
 *
 * @throws SvcError data_loss for a damaged database without a good snapshot; failed_precondition for a newer database
 *   or for files that are not this user's own; unavailable when another process is in the way of a repair
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
      await lock.exclude();
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

/** What the system says of a directory in which nothing can be made, as a sentence. */
function unwritable(dir: string, error: unknown): unknown {
  const { code, errno } = error as NodeJS.ErrnoException;
  if (errno === undefined) return error;
  if (code === "ENOSPC") return diskFull(error);
  const message = `the store ${dir} cannot be used: ${getSystemErrorMessage(errno)}`;
  return new SvcError("unavailable", message, { cause: error });
}

/** Whether the database is sound and of today's schema. */
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
  const verdict = (await ahead?.isSound) ?? (await isWhole(inspect(maintenance), log));
  return verdict === true;
}

/** A new database is made at once: all of it takes a third of what the start of a thread does, and nobody is served yet. */
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

/** Begins to look at a database in a thread. */
function inspect(maintenance: Maintenance): InspectionAhead {
  const answers = maintenance.answers({ kind: "inspect" });
  const [inspected, compared] = [answers.next(), answers.next()];
  const index = compared.then(({ value }) => (value?.kind === "compared" ? value.mended : undefined));
  index.catch(() => undefined);
  return { isSound: inspected.then(({ value }) => value?.kind === "inspected" && !value.corrupt), index };
}

/** Whether all is sound, once its index was compared, too. What became of that is logged. */
async function isWhole(
  { isSound, index }: InspectionAhead,
  log: StoreOptions["log"],
): Promise<boolean | undefined> {
  if ((await isSound) !== true) return isSound;
  try {
    const problem = await index;
    if (problem !== undefined)
      log?.warn({ problem }, "the index of the audit trail did not fit its records and was made again");
  } catch (error) {
    // SQLite undoes what meets a wrong entry, and says so.
    log?.warn(
      { err: error },
      "the index of the audit trail could not be checked; the next start tries again",
    );
  }
  return true;
}

/** Opening needs some KiB of disk for the log's index; on a full disk the reserve is for that too. */
function withReserve<T>(files: StoreFiles, open: () => T): T {
  try {
    return open();
  } catch (error) {
    if (sqliteFailure(error) !== "full") throw error;
    giveUpReserve(files);
    return open();
  }
}

/** Made by {@link openStore}. */
export class Store implements AsyncDisposable {
  /** What was restored when the store was opened; the caller should tell people. */
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
  /** Until it is known whether the database is sound. */
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
    // What was restored meanwhile is not what was read ahead.
    if (options.trustsMeanwhile === true && restoration === undefined) {
      this.#inspection = options.ahead && isWhole(options.ahead, options.log);
      void this.#inspection?.then((isSound) => {
        if (isSound === true) this.#inspection = undefined;
      });
    }
    this.#changes = new ChangeWatch({
      dataVersion: () => reader.dataVersion(),
      pollMs: options.changePollMs ?? 250,
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
   * The first row that `sql` answers. Blocks the calling thread, so: small, indexed queries.
   *
   * @throws SvcError data_loss for a damaged database
   */
  // The rows' type is the caller's knowledge of its own SQL.
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
  get<T>(sql: string, ...params: SqlValue[]): T | undefined {
    return this.#reader.get(sql, params) as T | undefined;
  }

  /** All rows that `sql` answers; as `get`. */
  all<T>(sql: string, ...params: SqlValue[]): T[] {
    return this.#reader.all(sql, params) as T[];
  }

  /**
   * Commits the statements as a whole; resolves when they are durable, with one result each. On an error nothing of
   * them was kept. Order is kept between writes of one process.
   *
   * @throws StoreConflict when a statement's `changes` or a constraint does not hold
   * @throws SvcError resource_exhausted (disk_full, or too_many writes wait), unavailable (the database was busy until
   *   the timeout), internal
   */
  async write(statements: readonly Statement[], options: WriteOptions = {}): Promise<StatementResult[]> {
    if (this.#closing !== undefined) {
      throw new SvcError("unavailable", "svc is stopping and writes no more");
    }
    const { essential = false, timeoutMs = this.#writeTimeoutMs } = options;
    const startMs = performance.now();
    let isKept = false;
    try {
      if (this.#inspection !== undefined && (await this.#inspection) !== true) {
        throw new SvcError("unavailable", "the database is damaged and nothing is written to it");
      }
      const results = await this.#writes.push({ statements, essential, deadlineMs: deadlineIn(timeoutMs) });
      isKept = true;
      return results;
    } finally {
      this.#onWrite?.(performance.now() - startMs, isKept);
    }
  }

  /** Calls `listener` after commits: at once after this process's, within a second after others'; several may be one. */
  onChange(listener: () => void): Disposable {
    return this.#changes.listen(listener);
  }

  /**
   * Brings the snapshot up to date with what was written before the call, and makes the reserve again if there is room;
   * happens by itself from time to time.
   */
  async housekeep(): Promise<void> {
    // One that is under way may have read the database before the caller's last write.
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
      this.#log?.warn(
        { err: error },
        "the store's snapshot or reserve could not be made; trying again later",
      );
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#changes[Symbol.dispose]();
    // A command that comes and goes has no timer to make its snapshots.
    if (snapshotAgeMs(this.#files) > this.#housekeepingIntervalMs) await this.#housekeepQuietly();
    // Who waited for one may have begun another.
    while (this.#housekeeping !== undefined) await this.#housekeeping.catch(() => undefined);
    // Before the writer, so that the writer is the last one and folds the log into the database.
    this.#reader[Symbol.dispose]();
    await this.#writes[Symbol.asyncDispose]();
    this.#lock[Symbol.dispose]();
  }
}
