import { linkSync, lstatSync, renameSync, rmSync, utimesSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { inspectDatabase } from "./inspection.ts";
import { companionSuffixes, createOwnerOnly, fsyncPath, type StoreFiles } from "./store-files.ts";
import { temporaryPath } from "./temporary-files.ts";

/** Whether the database was written since the snapshot was begun; true when there is none. */
export function isSnapshotStale(files: StoreFiles): boolean {
  const snapshotMs = modifiedMs(files.snapshot);
  if (snapshotMs === undefined) return true;
  const written = [files.database, files.database + companionSuffixes[0]].map(modifiedMs);
  return written.some((ms) => ms !== undefined && ms >= snapshotMs);
}

/** How long ago the snapshot was begun; endless when there is none. */
export function snapshotAgeMs(files: StoreFiles): number {
  return Date.now() - (modifiedMs(files.snapshot) ?? Number.NEGATIVE_INFINITY);
}

/** Undefined also for an empty file: a log that SQLite has opened and not written to. */
function modifiedMs(path: string): number | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats === undefined || stats.size === 0 ? undefined : stats.mtimeMs;
}

/**
 * Replaces the snapshot with a copy of the database as it is now; blocks on the disk, never another connection's writes.
 * A damaged database cannot push a good snapshot out: copying reads every page and the copy is inspected first.
 *
 * @param knownVersion the newest version of the schema that this svc knows
 */
export function takeSnapshot(files: StoreFiles, knownVersion: number): void {
  const temporary = temporaryPath(files);
  // The file system's clock, as the database's own times are compared with it.
  createOwnerOnly(temporary);
  try {
    const begun = lstatSync(temporary).mtime;
    const database = new DatabaseSync(files.database, { readOnly: true, timeout: 1_000 });
    try {
      database.prepare("VACUUM INTO ?").run(temporary);
    } finally {
      database.close();
    }
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

/** What the damaged row was is in the snapshot of before. */
function keepWhole(files: StoreFiles): void {
  try {
    linkSync(files.snapshot, files.wholeSnapshot);
  } catch (error) {
    // There is one already, or there was no snapshot.
    if (!["EEXIST", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
}
