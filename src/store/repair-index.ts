/** Compares the index that a check may skip with the rows of its table, and rebuilds it if they differ. */
import { DatabaseSync } from "node:sqlite";
import { openToInspect, problemIn, remakableTable } from "./inspection.ts";
import { PresenceLock } from "./presence-lock.ts";
import type { StoreFiles } from "./store-files.ts";

const lockWaitMs = 5_000;
const check = `integrity_check(${remakableTable})`;

/**
 * Blocks on the disk, and on writers.
 * @returns the problem; undefined if they match
 */
export async function repairIndex(files: StoreFiles): Promise<string | undefined> {
  const problem = findProblem(files);
  if (problem === undefined) return undefined;
  // Keeps other processes from replacing the database in the meantime.
  using lock = new PresenceLock(files.lock, lockWaitMs);
  await lock.share();
  using database = new DatabaseSync(files.database, { timeout: lockWaitMs });
  database.exec(`PRAGMA synchronous = FULL; REINDEX ${remakableTable}`);
  const remaining = problemIn(database, check);
  if (remaining !== undefined) throw new Error(remaining);
  return problem;
}

function findProblem({ database: path }: StoreFiles): string | undefined {
  using inspected = openToInspect(path, lockWaitMs);
  return problemIn(inspected.database, check);
}
