import type { DatabaseSync, StatementSync } from "node:sqlite";

/** Caches prepared statements by their text, and evicts the least recently used one first. */
export class StatementCache {
  readonly #database: DatabaseSync;
  readonly #limit: number;
  readonly #statements = new Map<string, StatementSync>();

  /** @param limit number of statements; each uses a few KiB outside of the JavaScript heap */
  constructor(database: DatabaseSync, limit = 128) {
    this.#database = database;
    this.#limit = limit;
  }

  prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      if (this.#statements.size >= this.#limit) {
        const [oldest = ""] = this.#statements.keys();
        this.#statements.delete(oldest);
      }
    } else {
      this.#statements.delete(sql);
    }
    this.#statements.set(sql, statement);
    return statement;
  }
}
