import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import { createOwnerOnly } from "./store-files.ts";

const retryMs = 20;

/**
 * A read-write lock between processes that the kernel releases when its holder dies. Node has no flock(2); SQLite's own
 * locks on an empty database are the same thing, and they also hold between two stores of one process.
 */
export class PresenceLock implements Disposable {
  readonly #database: DatabaseSync;
  readonly #waitMs: number;

  /**
   * @param path made if missing; owner only
   * @param waitMs how long to wait for other processes
   */
  constructor(path: string, waitMs: number) {
    try {
      createOwnerOnly(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    this.#database = new DatabaseSync(path, { timeout: 0 });
    this.#waitMs = waitMs;
  }

  /** Shares the store with others; an exclusive hold of this lock becomes shared. */
  async share(): Promise<void> {
    await this.#acquire(
      "BEGIN; SELECT 1 FROM sqlite_schema",
      "the store is being repaired or migrated by another process; try again",
    );
  }

  /** Keeps every other process out of the store. */
  async exclude(): Promise<void> {
    await this.#acquire(
      "BEGIN EXCLUSIVE",
      "the store needs repair or migration, but another svc process has it open; stop that one and try again",
    );
  }

  /** @throws SvcError unavailable, with `message`, when others are in the way for `waitMs` */
  async #acquire(sql: string, message: string): Promise<void> {
    const deadline = performance.now() + this.#waitMs;
    for (;;) {
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      try {
        // In memory: an exclusive hold would make a journal file. This reads the database, so it too may find it locked.
        this.#database.exec(`PRAGMA journal_mode = MEMORY; ${sql}`);
        return;
      } catch (error) {
        if (sqliteFailure(error) !== "busy") throw error;
        if (performance.now() >= deadline) {
          throw new SvcError("unavailable", message, { cause: error });
        }
      }
      await sleep(retryMs);
    }
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}
