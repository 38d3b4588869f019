/**
 * A digest of the schema, stored in the database itself. A flipped bit in the text of the schema can leave a valid
 * database with another schema, in which a table or a column of svc is missing. No check of SQLite reports that.
 */
import { hash } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { pragma } from "./pragma.ts";

/** Whether the schema is the one that the last migration left. `absent`: it was created by a version of svc without digests. */
export type SchemaState = "intact" | "damaged" | "absent";

/**
 * Compares the schema and its version with the digest. Older versions of svc read it too, so its format never changes.
 * @throws an error of SQLite
 */
export function checkSchema(database: DatabaseSync): SchemaState {
  if (!hasDigest(database)) return "absent";
  const stored = database.prepare("SELECT value FROM schema_digest").all();
  return stored.length === 1 && stored[0]?.["value"] === digestOf(database) ? "intact" : "damaged";
}

/** Stores the digest of the current schema and version. Part of each migration since the one that creates the table. */
export function storeSchemaDigest(database: DatabaseSync): void {
  if (!hasDigest(database)) return;
  database.prepare("INSERT OR REPLACE INTO schema_digest VALUES (1, ?)").run(digestOf(database));
}

function hasDigest(database: DatabaseSync): boolean {
  const found = database.prepare(
    "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_digest'",
  );
  return found.get() !== undefined;
}

/** Root pages are left out, because they differ in a snapshot. */
function digestOf(database: DatabaseSync): string {
  const objects = database
    .prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    .all();
  const rows = objects.map(({ type, name, tbl_name: table, sql }) => [type, name, table, sql]);
  return hash("sha256", JSON.stringify([pragma(database, "user_version"), ...rows]));
}
