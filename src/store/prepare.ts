/** Brings a database from any state to a sound one with the current schema. All other processes are locked out. */
import { chmodSync, copyFileSync, constants, lstatSync, renameSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SvcError } from "../errors.ts";
import { applicationId, inspectDatabase } from "./inspection.ts";
import type { Restoration } from "./messages.ts";
import { pragma } from "./pragma.ts";
import { storeSchemaDigest } from "./schema-digest.ts";
import { isOfStore, storeError } from "./sqlite-failure.ts";
import { takeSnapshot } from "./snapshot.ts";
import {
  companionSuffixes,
  createOwnerOnly,
  fsyncPath,
  type StoreFiles,
  removeLeftovers,
  temporaryPath,
} from "./store-files.ts";

/**
 * Creates, restores or migrates the database; blocks on the disk.
 * @throws SvcError `data_loss` if the database is damaged or lost without a good snapshot
 * @throws SvcError `not_possible` for a database newer than `migrations`
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

/** Whether nothing is there. A snapshot or a log without a database is the rest of a lost one. */
export function isNewStore(files: StoreFiles): boolean {
  const log = lstatSync(files.database + companionSuffixes[0], { throwIfNoEntry: false });
  return !exists(files.database) && !exists(files.snapshot) && (log === undefined || log.size === 0);
}

function snapshotIfPossible(files: StoreFiles, migrations: readonly string[]): void {
  try {
    takeSnapshot(files, migrations.length);
  } catch {
    // Startup does not depend on it: the snapshot stays stale, and housekeeping tries again and reports errors.
  }
}

/** Uses a temporary name until the database is complete, so that an empty `svc.db` is never a new one. */
function createDatabase(files: StoreFiles, migrations: readonly string[]): void {
  const temporary = temporaryPath(files);
  createOwnerOnly(temporary);
  try {
    // Nothing is lost with a temporary file: it is synced as a whole, not step by step.
    migrate(temporary, migrations, "OFF");
    // If a full disk kept content in the log, it would be lost with the rename.
    if (exists(`${temporary}-wal`)) throw new Error(`${temporary} could not be completed`);
    fsyncPath(temporary);
    renameSync(temporary, files.database);
    fsyncPath(files.dir);
  } catch (error) {
    for (const suffix of ["", ...companionSuffixes]) rmSync(temporary + suffix, { force: true });
    throw error;
  }
}

/**
 * Moves the damaged database aside, including its log (which would be replayed into the snapshot), and the snapshot
 * into place.
 */
function restoreSnapshot(
  files: StoreFiles,
  knownVersion: number,
  problem: string,
  nowMs: number,
): Restoration {
  const snapshot = inspectDatabase(files.snapshot, knownVersion);
  if (snapshot.condition !== "sound") {
    const state =
      snapshot.condition === "missing"
        ? "the snapshot is missing"
        : `the snapshot is damaged too: ${snapshot.problem}`;
    throw new SvcError(
      "store_damaged",
      `${files.database} is damaged (${problem}) and cannot be replaced by its snapshot ${files.snapshot} (${state}); ` +
        `put a good copy in its place, or move ${files.dir} away to start with an empty store`,
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
 * Runs the steps that the database has not run yet, each in its own transaction.
 * @returns whether there were any
 */
function migrate(path: string, migrations: readonly string[], synchronous: "FULL" | "OFF" = "FULL"): boolean {
  // Off, because a step may rebuild a table that others refer to; the result is checked below.
  const database = new DatabaseSync(path, { enableForeignKeyConstraints: false, timeout: 5_000 });
  try {
    // A step that copies a row unchanged does not validate it: otherwise one damaged row would prevent the upgrade of
    // svc.
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
        throw new Error(`step ${index + 1} leaves rows that refer to missing rows`);
      }
      database.exec(`PRAGMA user_version = ${index + 1}`);
      storeSchemaDigest(database);
      database.exec("COMMIT");
    }
    return from < migrations.length;
  } catch (error) {
    if (isOfStore(error)) throw storeError(error);
    throw new SvcError(
      "internal",
      `${path} could not be migrated to version ${migrations.length} and is unchanged: ${(error as Error).message}`,
      { cause: error },
    );
  } finally {
    // Rolls back a step that failed.
    database.close();
  }
}

/** The number of rows that refer to missing rows. */
function danglingRows(database: DatabaseSync): number {
  return database.prepare("PRAGMA foreign_key_check").all().length;
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}
