import type { DatabaseSync } from "node:sqlite";

/** The first value that a pragma returns. */
export function pragma(database: DatabaseSync, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() ?? {})[0];
}
