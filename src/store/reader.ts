import { DatabaseSync, type StatementSync } from "node:sqlite";
import { pragma } from "./pragma.ts";
import type { SqlValue } from "./messages.ts";
import { isOfStore, storeError } from "./sqlite-failure.ts";
import { StatementCache } from "./statement-cache.ts";

/** Only opening, recovery after a crash and the last close ever block a reader of a write-ahead log. */
const lockWaitMs = 250;

/** The calling thread's connection. It cannot write, and no writer of any process blocks it. */
export class Reader implements Disposable {
  readonly #database: DatabaseSync;
  readonly #statements: StatementCache;

  constructor(path: string) {
    this.#database = new DatabaseSync(path, { readOnly: true, timeout: lockWaitMs });
    this.#statements = new StatementCache(this.#database);
    // Also opens the log, so that errors occur now.
    this.dataVersion();
  }

  get(sql: string, params: readonly SqlValue[]): unknown {
    return guarded(() => exactly(this.#statements.prepare(sql), (statement) => statement.get(...params)));
  }

  all(sql: string, params: readonly SqlValue[]): unknown[] {
    return guarded(() => exactly(this.#statements.prepare(sql), (statement) => statement.all(...params)));
  }

  dataVersion(): unknown {
    return pragma(this.#database, "data_version");
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}

/**
 * Reads again if a number is too large for JavaScript. svc never writes such numbers, but a damaged row with one must
 * not prevent reading all others.
 */
function exactly<T>(statement: StatementSync, read: (statement: StatementSync) => T): T {
  try {
    return read(statement);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_OUT_OF_RANGE") throw error;
  }
  statement.setReadBigInts(true);
  try {
    const found = read(statement);
    for (const row of [found].flat()) if (row !== undefined) plainNumbers(row as Record<string, unknown>);
    return found;
  } finally {
    statement.setReadBigInts(false);
  }
}

/** Converts the bigints of a row to numbers in place. A number that is too large becomes an unsafe integer. */
export function plainNumbers(row: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(row)) if (typeof value === "bigint") row[name] = Number(value);
}

function guarded<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw isOfStore(error) ? storeError(error) : error;
  }
}
