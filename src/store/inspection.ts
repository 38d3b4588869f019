import { accessSync, constants, lstatSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SvcError } from "../errors.ts";
import { schemaDigestVersion } from "./migrations.ts";
import { pragma } from "./pragma.ts";
import { checkSchema } from "./schema-digest.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import { companionSuffixes } from "./store-files.ts";

/** Identifies a database of svc: "svc" and a one, in `PRAGMA application_id`. */
export const applicationId = 0x73766301;

/**
 * Result of an inspection. `sound` carries the schema's version, and whether a row violates its table's constraints,
 * which affects only that row. `corrupt` carries the problem.
 */
export type Inspection =
  | { condition: "missing" }
  | { condition: "corrupt"; problem: string }
  | { condition: "sound"; version: number; hasDamagedRow: boolean };

/** The parts of the database to inspect. */
interface InspectionDepth {
  /** Pages of a larger file are not read. */
  maxBytes?: number;
  /** Whether the index of the {@link remakableTable} is compared with its rows, too. Default: true. */
  comparesRemakable?: boolean;
}

/**
 * Most rows of a large store are audit records, and comparing them with their index takes as long as everything else.
 * The index enforces nothing and can be rebuilt from the rows.
 */
export const remakableTable = "audit";

/**
 * Inspects the database at `path` without changing it: its application ID, its version, its schema, and the structure
 * of every page, row and index (`PRAGMA integrity_check`, which also runs the schema's CHECKs).
 * @throws SvcError `not_possible` for a database newer than `knownVersion`
 */
export function inspectDatabase(
  path: string,
  knownVersion: number,
  { maxBytes = Number.POSITIVE_INFINITY, comparesRemakable = true }: InspectionDepth = {},
): Inspection {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return { condition: "missing" };
  // A database is moved into place with a complete schema, so an empty one has lost its content.
  if (stats.size === 0) return { condition: "corrupt", problem: "the file is empty" };
  try {
    using inspected = openToInspect(path, 1_000);
    const { database } = inspected;
    if (pragma(database, "application_id") !== applicationId) {
      return { condition: "corrupt", problem: "the file is not a database of svc" };
    }
    const version = Number(pragma(database, "user_version"));
    if (version < 1) return { condition: "corrupt", problem: `the schema's version is ${version}` };
    const schema = checkSchema(database);
    if (schema === "damaged" || (schema === "absent" && version >= schemaDigestVersion)) {
      return { condition: "corrupt", problem: `the schema is not the one of version ${version}` };
    }
    if (version > knownVersion) {
      throw new SvcError(
        "not_possible",
        `${path} has version ${version} and this svc knows versions up to ${knownVersion}; use the newer svc`,
      );
    }
    if (rejectsWrites(database) && isWritable(path)) {
      return { condition: "corrupt", problem: "the format of the file is one that SQLite can only read" };
    }
    // SQLite reads a truncated page as if zeros followed. Only an interrupted checkpoint leaves one legitimately, and
    // then the log still has the whole page.
    const log = lstatSync(path + companionSuffixes[0], { throwIfNoEntry: false });
    if (stats.size % Number(pragma(database, "page_size")) !== 0 && (log?.size ?? 0) === 0) {
      return { condition: "corrupt", problem: `${stats.size} bytes are not a multiple of the page size` };
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
    // The statements are fixed and match each schema of svc.
    if (["corrupt", "statement"].includes(sqliteFailure(error) ?? "")) {
      return { condition: "corrupt", problem: (error as Error).message };
    }
    throw error;
  }
}

interface InspectedDatabase extends Disposable {
  readonly database: DatabaseSync;
}

/** Opens a database without changing it. */
export function openToInspect(path: string, timeoutMs: number): InspectedDatabase {
  using opening = new DisposableStack();
  // SQLite drops CHECKs from the schema of a read-only connection, so the inspecting connection is writable and sets
  // `query_only`. As the last connection it would fold the log into the database on close, so a read-only connection is
  // closed after it.
  const last = opening.use(new DatabaseSync(path, { readOnly: true, timeout: timeoutMs }));
  pragma(last, "data_version");
  const database = opening.use(new DatabaseSync(path, { timeout: timeoutMs }));
  database.exec("PRAGMA query_only = ON");
  const opened = opening.move();
  return { database, [Symbol.dispose]: () => opened.dispose() };
}

/** Tries to start a write. A database in which another process writes can be written. */
function rejectsWrites(database: DatabaseSync): boolean {
  const waitMs = Number(pragma(database, "busy_timeout"));
  database.exec("PRAGMA query_only = OFF; PRAGMA busy_timeout = 0; BEGIN");
  try {
    database.exec("UPDATE meta SET value = value WHERE 0");
    return false;
  } catch (error) {
    if (sqliteFailure(error) === "busy") return false;
    if (sqliteFailure(error) === "read-only") return true;
    throw error;
  } finally {
    if (database.isTransaction) database.exec("ROLLBACK");
    database.exec(`PRAGMA query_only = ON; PRAGMA busy_timeout = ${waitMs}`);
  }
}

/** Whether the file system allows writing. */
function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Only the index check: rows are checked elsewhere. */
export function problemIn(database: DatabaseSync, check: string): string | undefined {
  return problemsIn(database, check).find((problem) => !isOfOneRow(problem));
}

/** A check stops after a hundred problems by default, so many damaged rows would hide a worse problem. */
const allProblems = 2 ** 31 - 1;

/** Yields the problems that the checks report. */
function* problemsIn(database: DatabaseSync, ...checks: readonly string[]): Generator<string, undefined> {
  for (const check of checks)
    for (const row of database.prepare(`PRAGMA ${check}`).iterate()) {
      const [verdict] = Object.values(row);
      if (verdict !== "ok") yield String(verdict);
    }
}

/** Whether a problem concerns a value that violates its table's constraints but can be read; see `pragma.c` of SQLite. */
function isOfOneRow(problem: string): boolean {
  return /^(CHECK constraint failed in|NULL value in|(non-)?[A-Z]+ value in) /.test(problem);
}

/** Checks that compare the indexes of all other tables with their rows. */
function indexChecks(database: DatabaseSync): string[] {
  const tables = database
    .prepare("SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'index' AND tbl_name <> ?")
    .all(remakableTable);
  return tables.map(({ tbl_name: table }) => `integrity_check(${String(table)})`);
}
