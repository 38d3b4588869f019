import { linkSync, lstatSync, renameSync, rmSync, utimesSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { inspectDatabase } from "./inspection.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import { companionSuffixes, createOwnerOnly, fsyncPath, type StoreFiles } from "./store-files.ts";
import { temporaryPath } from "./temporary-files.ts";

/** Whether the database was written since the snapshot was begun; true when there is none. */
export function isSnapshotStale(files: StoreFiles): boolean {
  const snapshotMs = modifiedMs(files.snapshot);
  if (snapshotMs === undefined) return true;
  return writtenMs(files) >= snapshotMs;
}

/** How long ago the snapshot was begun; endless when there is none. */
export function snapshotAgeMs(files: StoreFiles): number {
  return Date.now() - (modifiedMs(files.snapshot) ?? Number.NEGATIVE_INFINITY);
}

/** When the database was written last. */
function writtenMs(files: StoreFiles): number {
  const times = [files.database, files.database + companionSuffixes[0]].map(modifiedMs);
  return Math.max(...times.map((ms) => ms ?? Number.NEGATIVE_INFINITY));
}

/** Undefined also for an empty file: a log that SQLite has opened and not written to. */
function modifiedMs(path: string): number | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats === undefined || stats.size === 0 ? undefined : stats.mtimeMs;
}

/**
 * Replaces the snapshot with a copy of the database as it is now; blocks on the disk, never another connection's writes
 * for longer than a look at whether there are any.
 * A damaged database cannot push a good snapshot out: copying reads every page and the copy is inspected first.
 *
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
    if (copy.hasDamagedRow) keepWhole(files);
    else rmSync(files.wholeSnapshot, { force: true });
    renameSync(temporary, files.snapshot);
    fsyncPath(files.dir);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** @returns from when on a write is perhaps not in the copy */
function copyDatabase(files: StoreFiles, temporary: string): Date {
  using database = new DatabaseSync(files.database, { readOnly: true, timeout: 1_000 });
  // Behind the one that only reads, as a database that is gone is not to be made.
  const begun = createBetweenCommits(files, temporary);
  database.prepare("VACUUM INTO ?").run(temporary);
  return begun;
}

/**
 * Makes the file of the copy, by the file system's clock, as the database's own times are compared with it.
 * @returns when all that was written before is seen by who reads from now on
 */
function createBetweenCommits(files: StoreFiles, temporary: string): Date {
  using database = new DatabaseSync(files.database, { timeout: 0 });
  try {
    database.exec("BEGIN IMMEDIATE");
  } catch (error) {
    if (sqliteFailure(error) !== "busy") throw error;
    createOwnerOnly(temporary);
    // What is written is seen once the disk has it: what is under way may be older than the copy and missing from it, so this one
    // is stale from the beginning.
    return new Date(writtenMs(files));
  }
  createOwnerOnly(temporary);
  // Not its `mtime`, which is rounded, half the time to after what it says.
  return new Date(Math.floor(lstatSync(temporary).mtimeMs));
}

/** What the damaged row was is in the snapshot of before. */
function keepWhole(files: StoreFiles): void {
  try {
    linkSync(files.snapshot, files.wholeSnapshot);
  } catch (error) {
    // There is one already, or there was no snapshot.
    if (!["EEXIST", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
}
