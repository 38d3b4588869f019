import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { sqliteFailure } from "./sqlite-failure.ts";
import { createOwnerOnly } from "./store-files.ts";

const retryMs = 20;

/**
 * A read-write lock between processes, which the kernel releases when its holder dies. Node lacks flock(2), so this
 * uses SQLite's locks on an empty database, which also work between two stores of one process.
 */
export class PresenceLock implements Disposable {
  readonly #database: DatabaseSync;
  readonly #waitMs: number;

  /**
   * @param path created if missing, accessible only to its owner
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

  /** Shares the store with others; an exclusive lock is downgraded to a shared one. */
  async share(): Promise<void> {
    await this.#acquire(
      "BEGIN; SELECT 1 FROM sqlite_schema",
      "the store is being repaired or migrated by another process; try again",
    );
  }

  /** Locks every other process out of the store. */
  async lockExclusively(): Promise<void> {
    await this.#acquire(
      "BEGIN EXCLUSIVE",
      "the store needs repair or migration, but another svc process has it open; stop the other process and try again",
    );
  }

  /** @throws SvcError `unavailable` with `message` if others hold the lock for `waitMs` */
  async #acquire(sql: string, message: string): Promise<void> {
    const deadline = performance.now() + this.#waitMs;
    for (;;) {
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      try {
        // In memory: an exclusive lock would create a journal file. This statement reads the database, so it can fail
        // to get the lock, too.
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
