import { DatabaseSync } from "node:sqlite";
import { pragma } from "./inspection.ts";
import type { SqlValue } from "./messages.ts";
import { sqliteFailure, storeError } from "./sqlite-failure.ts";
import { StatementCache } from "./statement-cache.ts";

/** Only opening, recovery after a crash and the last close ever keep a reader of a write-ahead log waiting. */
const lockWaitMs = 250;

/** The calling thread's connection: it cannot write, and no writer of any process keeps it waiting. */
export class Reader implements Disposable {
  readonly #database: DatabaseSync;
  readonly #statements: StatementCache;

  constructor(path: string) {
    this.#database = new DatabaseSync(path, { readOnly: true, timeout: lockWaitMs });
    this.#statements = new StatementCache(this.#database);
    // Opens the log too, so that what stands in the way shows now.
    this.dataVersion();
  }

  get(sql: string, params: readonly SqlValue[]): unknown {
    return guarded(() => this.#statements.prepare(sql).get(...params));
  }

  all(sql: string, params: readonly SqlValue[]): unknown[] {
    return guarded(() => this.#statements.prepare(sql).all(...params));
  }

  dataVersion(): unknown {
    return pragma(this.#database, "data_version");
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}

function guarded<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    const failure = sqliteFailure(error);
    throw failure === "busy" || failure === "corrupt" || failure === "full" ? storeError(error) : error;
  }
}
