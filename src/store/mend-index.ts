/** Compares the index that a check may leave out with the rows of its table, and makes it again where they differ. */
import { DatabaseSync } from "node:sqlite";
import { openToInspect, problemIn, remakableTable } from "./inspection.ts";
import { PresenceLock } from "./presence-lock.ts";
import type { StoreFiles } from "./store-files.ts";

const lockWaitMs = 5_000;
const check = `integrity_check(${remakableTable})`;

/**
 * Blocks on the disk, and on whoever writes.
 * @returns what was wrong; undefined: nothing
 */
export async function mendIndex(files: StoreFiles): Promise<string | undefined> {
  const problem = findProblem(files);
  if (problem === undefined) return undefined;
  // So that no other process puts another database in its place meanwhile.
  using lock = new PresenceLock(files.lock, lockWaitMs);
  await lock.share();
  using database = new DatabaseSync(files.database, { timeout: lockWaitMs });
  database.exec(`PRAGMA synchronous = FULL; REINDEX ${remakableTable}`);
  const left = problemIn(database, check);
  if (left !== undefined) throw new Error(left);
  return problem;
}

function findProblem({ database: path }: StoreFiles): string | undefined {
  using inspected = openToInspect(path, lockWaitMs);
  return problemIn(inspected.database, check);
}
