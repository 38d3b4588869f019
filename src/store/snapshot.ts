import { linkSync, lstatSync, renameSync, rmSync, utimesSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { inspectDatabase } from "./inspection.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import {
  companionSuffixes,
  createOwnerOnly,
  fsyncPath,
  type StoreFiles,
  temporaryPath,
} from "./store-files.ts";

/** Whether the database was written since the snapshot was started; true without a snapshot. */
export function isSnapshotStale(files: StoreFiles): boolean {
  const snapshotMs = modifiedMs(files.snapshot);
  if (snapshotMs === undefined) return true;
  return writtenMs(files) >= snapshotMs;
}

/** How long ago the snapshot was started; infinite without a snapshot. */
export function snapshotAgeMs(files: StoreFiles): number {
  return Date.now() - (modifiedMs(files.snapshot) ?? Number.NEGATIVE_INFINITY);
}

/** The time of the last write to the database. */
function writtenMs(files: StoreFiles): number {
  const times = [files.database, files.database + companionSuffixes[0]].map(modifiedMs);
  return Math.max(...times.map((ms) => ms ?? Number.NEGATIVE_INFINITY));
}

/** Undefined also for an empty file: a log that SQLite has opened but not written to. */
function modifiedMs(path: string): number | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats === undefined || stats.size === 0 ? undefined : stats.mtimeMs;
}

/**
 * Replaces the snapshot with a copy of the current database. Blocks on the disk, but blocks writes of other connections
 * only while it checks for them. A damaged database cannot replace a good snapshot: copying reads every page, and the
 * copy is inspected first.
 * @param knownVersion the newest version of the schema that this svc knows
 */
export function takeSnapshot(files: StoreFiles, knownVersion: number): void {
  const temporary = temporaryPath(files);
  try {
    const begun = copyDatabase(files, temporary);
    const copy = inspectDatabase(temporary, knownVersion);
    if (copy.condition !== "sound") {
      throw new Error(copy.condition === "corrupt" ? `a bad copy: ${copy.problem}` : "the copy is gone");
    }
    utimesSync(temporary, begun, begun);
    fsyncPath(temporary);
    if (copy.hasDamagedRow) retainUndamaged(files);
    else rmSync(files.wholeSnapshot, { force: true });
    renameSync(temporary, files.snapshot);
    fsyncPath(files.dir);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** @returns the time up to which the copy contains every write */
function copyDatabase(files: StoreFiles, temporary: string): Date {
  using database = new DatabaseSync(files.database, { readOnly: true, timeout: 1_000 });
  // Opened after the read-only connection, because a missing database must not be created.
  const begun = createBetweenCommits(files, temporary);
  database.prepare("VACUUM INTO ?").run(temporary);
  return begun;
}

/**
 * Creates the file of the copy to get the file system's time, which is compared with the database's times.
 * @returns a time; everything written before is visible to later reads
 */
function createBetweenCommits(files: StoreFiles, temporary: string): Date {
  using database = new DatabaseSync(files.database, { timeout: 0 });
  try {
    database.exec("BEGIN IMMEDIATE");
  } catch (error) {
    if (sqliteFailure(error) !== "busy") throw error;
    createOwnerOnly(temporary);
    // A write becomes visible when it is on disk. A write in progress may be older than the copy and missing from it,
    // so this copy counts as stale from the start.
    return new Date(writtenMs(files));
  }
  createOwnerOnly(temporary);
  // Not `mtime`, which is rounded, half of the time up.
  return new Date(Math.floor(lstatSync(temporary).mtimeMs));
}

/** The previous snapshot has the undamaged row. */
function retainUndamaged(files: StoreFiles): void {
  try {
    linkSync(files.snapshot, files.wholeSnapshot);
  } catch (error) {
    // The link exists already, or the snapshot is missing.
    if (!["EEXIST", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
}
