/** Brings a database from whatever is there to a sound one with today's schema. Runs with everyone else locked out. */
import { chmodSync, copyFileSync, constants, lstatSync, renameSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SvcError } from "../errors.ts";
import { applicationId, inspectDatabase, pragma } from "./inspection.ts";
import type { Restoration } from "./messages.ts";
import { isOfStore, storeError } from "./sqlite-failure.ts";
import { takeSnapshot } from "./snapshot.ts";
import { companionSuffixes, createOwnerOnly, fsyncPath, type StoreFiles } from "./store-files.ts";
import { removeLeftovers, temporaryPath } from "./temporary-files.ts";

/**
 * Creates, restores or migrates the database; blocks on the disk.
 *
 * @throws SvcError data_loss when the database is damaged or lost and there is no good snapshot to put in its place
 * @throws SvcError failed_precondition for a database newer than `migrations`
 */
export function prepareDatabase(
  files: StoreFiles,
  migrations: readonly string[],
  nowMs: number,
): Restoration | undefined {
  removeLeftovers(files, nowMs);
  const found = inspectDatabase(files.database, migrations.length);
  let restoration: Restoration | undefined;
  if (found.condition === "corrupt") {
    restoration = restoreSnapshot(files, migrations.length, found.problem, nowMs);
  } else if (found.condition === "missing") {
    if (isNewStore(files)) createDatabase(files, migrations);
    else restoration = restoreSnapshot(files, migrations.length, "the file is gone", nowMs);
  }
  if (migrate(files.database, migrations) || !exists(files.snapshot)) snapshotIfPossible(files, migrations);
  return restoration;
}

/** Whether nothing is there: a snapshot or a log without a database is what is left of one. */
export function isNewStore(files: StoreFiles): boolean {
  const log = lstatSync(files.database + companionSuffixes[0], { throwIfNoEntry: false });
  return !exists(files.database) && !exists(files.snapshot) && (log === undefined || log.size === 0);
}

function snapshotIfPossible(files: StoreFiles, migrations: readonly string[]): void {
  try {
    takeSnapshot(files, migrations.length);
  } catch {
    // A start does not hang on it: the snapshot stays stale, and housekeeping tries again and says why it fails.
  }
}

/** Under a temporary name until it is whole, so that an empty `svc.db` is never a new one. */
function createDatabase(files: StoreFiles, migrations: readonly string[]): void {
  const temporary = temporaryPath(files);
  createOwnerOnly(temporary);
  try {
    // Nothing is lost with a file that has no name yet: it comes to the disk as a whole, not step by step.
    migrate(temporary, migrations, "OFF");
    // What a full disk kept in the log would be lost with the name.
    if (exists(`${temporary}-wal`)) throw new Error(`${temporary} could not be made whole`);
    fsyncPath(temporary);
    renameSync(temporary, files.database);
    fsyncPath(files.dir);
  } catch (error) {
    for (const suffix of ["", ...companionSuffixes]) rmSync(temporary + suffix, { force: true });
    throw error;
  }
}

/** Moves what is damaged aside, log and all (a log would be replayed into the snapshot), and the snapshot into place. */
function restoreSnapshot(
  files: StoreFiles,
  knownVersion: number,
  problem: string,
  nowMs: number,
): Restoration {
  const snapshot = inspectDatabase(files.snapshot, knownVersion);
  if (snapshot.condition !== "sound") {
    const state =
      snapshot.condition === "missing" ? "there is none" : `it is damaged too: ${snapshot.problem}`;
    throw new SvcError(
      "store_damaged",
      `${files.database} is damaged (${problem}) and cannot be replaced by its snapshot ${files.snapshot} (${state}); ` +
        `put a good copy in its place, or move ${files.dir} away to start with nothing`,
    );
  }
  const snapshotAtMs = Math.floor(lstatSync(files.snapshot).mtimeMs);
  const temporary = temporaryPath(files);
  copyFileSync(files.snapshot, temporary, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
  chmodSync(temporary, 0o600);
  fsyncPath(temporary);

  const quarantine = `${files.database}.corrupt-${new Date(nowMs).toISOString().replaceAll(":", "-")}`;
  let quarantined = false;
  for (const suffix of [...companionSuffixes, ""]) {
    if (!exists(files.database + suffix)) continue;
    renameSync(files.database + suffix, quarantine + suffix);
    quarantined = true;
  }
  renameSync(temporary, files.database);
  fsyncPath(files.dir);
  return { problem, snapshotAtMs, ...(quarantined ? { quarantine } : {}) };
}

/**
 * Takes the steps that the database has not taken yet, each in a transaction of its own.
 *
 * @returns whether there were any
 */
function migrate(path: string, migrations: readonly string[], synchronous: "FULL" | "OFF" = "FULL"): boolean {
  // Off, as a step may rebuild a table that others refer to; what it leaves is checked below.
  const database = new DatabaseSync(path, { enableForeignKeyConstraints: false, timeout: 5_000 });
  try {
    // A step that copies a row as it is does not judge it: one damaged row would keep svc from being upgraded.
    database.exec(
      `PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous}; PRAGMA ignore_check_constraints = ON`,
    );
    const from = Number(pragma(database, "user_version"));
    if (from === 0) database.exec(`PRAGMA application_id = ${applicationId}`);
    const dangling = danglingRows(database);
    for (const [index, sql] of migrations.entries()) {
      if (index < from) continue;
      database.exec("BEGIN IMMEDIATE");
      database.exec(sql);
      if (danglingRows(database) > dangling) {
        throw new Error(`step ${index + 1} leaves rows that refer to nothing`);
      }
      database.exec(`PRAGMA user_version = ${index + 1}; COMMIT`);
    }
    return from < migrations.length;
  } catch (error) {
    if (isOfStore(error)) throw storeError(error);
    throw new SvcError(
      "internal",
      `${path} could not be migrated to version ${migrations.length} and is as it was: ${(error as Error).message}`,
      { cause: error },
    );
  } finally {
    // Undoes a step that failed half-way.
    database.close();
  }
}

/** How many refer to nothing. */
function danglingRows(database: DatabaseSync): number {
  return database.prepare("PRAGMA foreign_key_check").all().length;
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}
