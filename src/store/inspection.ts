import { lstatSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SvcError } from "../errors.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import { companionSuffixes } from "./store-files.ts";

/** Marks a database as ours: "svc" and a one, in `PRAGMA application_id`. */
export const applicationId = 0x73766301;

/**
 * What is there: `sound` carries the schema's version, and whether a row has what its table allows no row, which takes away nothing
 * but that row; `corrupt` what is wrong.
 */
export type Inspection =
  | { condition: "missing" }
  | { condition: "corrupt"; problem: string }
  | { condition: "sound"; version: number; hasDamagedRow: boolean };

/** How much is looked at. */
interface InspectionDepth {
  /** A larger file's pages are not read. */
  maxBytes?: number;
  /** Whether the entries of the {@link remakableTable}'s index are compared with its rows, too; by default they are. */
  comparesRemakable?: boolean;
}

/**
 * Most rows of a large store are its audit records, and to compare them with their index takes as long as all else. That index
 * guards nothing and can be made of them again.
 */
export const remakableTable = "audit";

/**
 * Looks at the database at `path` without changing it: whose it is, its version, and the structure of every page,
 * row and index (`PRAGMA integrity_check`, which also runs the schema's CHECKs).
 *
 * @throws SvcError failed_precondition for a database newer than `knownVersion`
 */
export function inspectDatabase(
  path: string,
  knownVersion: number,
  { maxBytes = Number.POSITIVE_INFINITY, comparesRemakable = true }: InspectionDepth = {},
): Inspection {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return { condition: "missing" };
  // A database takes its place with a whole schema in it, so an empty one has lost it.
  if (stats.size === 0) return { condition: "corrupt", problem: "the file is empty" };
  try {
    using inspected = openToInspect(path, 1_000);
    const { database } = inspected;
    if (pragma(database, "application_id") !== applicationId) {
      return { condition: "corrupt", problem: "the file is not a database of svc" };
    }
    const version = Number(pragma(database, "user_version"));
    if (version < 1) return { condition: "corrupt", problem: `the schema's version is ${version}` };
    if (version > knownVersion) {
      throw new SvcError(
        "not_possible",
        `${path} has version ${version} and this svc knows versions up to ${knownVersion}; use the newer svc`,
      );
    }
    // SQLite reads a page that is cut short as if zeros followed. Only a checkpoint that broke off makes one by right,
    // and then the log still has the whole page.
    const log = lstatSync(path + companionSuffixes[0], { throwIfNoEntry: false });
    if (stats.size % Number(pragma(database, "page_size")) !== 0 && (log?.size ?? 0) === 0) {
      return { condition: "corrupt", problem: `${stats.size} bytes are no whole number of pages` };
    }
    const checks = comparesRemakable
      ? [`integrity_check(${allProblems})`]
      : [`quick_check(${allProblems})`, ...indexChecks(database)];
    let hasDamagedRow = false;
    if (stats.size <= maxBytes) {
      for (const problem of problemsIn(database, ...checks)) {
        if (!isOfOneRow(problem)) return { condition: "corrupt", problem };
        hasDamagedRow = true;
      }
    }
    return { condition: "sound", version, hasDamagedRow };
  } catch (error) {
    if (sqliteFailure(error) === "corrupt") {
      return { condition: "corrupt", problem: (error as Error).message };
    }
    throw error;
  }
}

interface InspectedDatabase extends Disposable {
  readonly database: DatabaseSync;
}

/** Opens a database for what changes nothing of it. */
export function openToInspect(path: string, timeoutMs: number): InspectedDatabase {
  using opening = new DisposableStack();
  // SQLite leaves CHECKs out of a read-only connection's schema, so the inspecting one may write, and only promises
  // not to. Closed as the last one it would still fold the log into the database: a read-only one outlasts it.
  const last = opening.use(new DatabaseSync(path, { readOnly: true, timeout: timeoutMs }));
  pragma(last, "data_version");
  const database = opening.use(new DatabaseSync(path, { timeout: timeoutMs }));
  database.exec("PRAGMA query_only = ON");
  const opened = opening.move();
  return { database, [Symbol.dispose]: () => opened.dispose() };
}

/** Of the index's check: the rows themselves are looked at elsewhere. */
export function problemIn(database: DatabaseSync, check: string): string | undefined {
  return problemsIn(database, check).find((problem) => !isOfOneRow(problem));
}

/** A check ends after a hundred problems otherwise: as many damaged rows would hide what is worse. */
const allProblems = 2 ** 31 - 1;

/** What these checks find, as they find it. */
function* problemsIn(database: DatabaseSync, ...checks: readonly string[]): Generator<string, undefined> {
  for (const check of checks)
    for (const row of database.prepare(`PRAGMA ${check}`).iterate()) {
      const [verdict] = Object.values(row);
      if (verdict !== "ok") yield String(verdict);
    }
}

/** Whether a value is not as its table wants it, where all can be read: see `pragma.c` of SQLite. */
function isOfOneRow(problem: string): boolean {
  return /^(CHECK constraint failed in|NULL value in|(non-)?[A-Z]+ value in) /.test(problem);
}

/** What compares the indexes of all other tables with their rows. */
function indexChecks(database: DatabaseSync): string[] {
  const tables = database
    .prepare("SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'index' AND tbl_name <> ?")
    .all(remakableTable);
  return tables.map(({ tbl_name: table }) => `integrity_check(${String(table)})`);
}

/** The first value that a pragma answers. */
export function pragma(database: DatabaseSync, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() ?? {})[0];
}
