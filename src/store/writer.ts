/** The only writing connection of this process. It lives in the writer's thread, where blocking does no harm. */
import { hash } from "node:crypto";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { SvcError } from "../errors.ts";
import {
  monotonicMs,
  type Row,
  type SqlValue,
  type Statement,
  type StatementResult,
  type WriteFailure,
  type WriteOutcome,
  type WriteRequest,
  errorMessage,
} from "./messages.ts";
import { releaseReserve, isReserveInUse, makeReserve } from "./reserve.ts";
import { diskFull, sqliteFailure, storeError } from "./sqlite-failure.ts";
import { StatementCache } from "./statement-cache.ts";
import type { StoreFiles } from "./store-files.ts";

/** How long one attempt waits for another process. Between attempts, requests past their deadline are rejected. */
const lockWaitMs = 100;
/** The write-ahead log is truncated to this size after a burst. */
const maxIdleLogBytes = 16 * 1024 * 1024;
/**
 * This many pages of the log, 4 KiB each, are folded into the database at once. A large number, so that a page that is
 * written repeatedly is folded once, and a batch of many jobs does not wait for it each time.
 */
const checkpointPages = maxIdleLogBytes / 4096;

export class Writer implements Disposable {
  readonly #files: StoreFiles;
  readonly #database: DatabaseSync;
  readonly #statements: StatementCache;

  constructor(files: StoreFiles) {
    this.#files = files;
    this.#database = new DatabaseSync(files.database, { timeout: lockWaitMs });
    // Temporary tables in memory, because a full /tmp must not fail a write.
    this.#database.exec(
      `PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = ${maxIdleLogBytes};
       PRAGMA wal_autocheckpoint = ${checkpointPages}`,
    );
    // For hash chains: only inside the transaction is it certain which row is the last one.
    this.#database.function("sha256", { deterministic: true }, (text) =>
      hash("sha256", String(text), "buffer"),
    );
    this.#statements = new StatementCache(this.#database);
  }

  /**
   * Commits the requests in one transaction, each completely or not at all. If the transaction itself fails (a full
   * disk, a bad page), each request is tried again separately, so that one does not affect the others.
   */
  commit(requests: readonly WriteRequest[]): WriteOutcome[] {
    const outcomes = new Map<WriteRequest, WriteOutcome>();
    const reserveInUse = isReserveInUse(this.#files);
    const admitted: WriteRequest[] = [];
    for (const request of requests) {
      if (reserveInUse && !request.essential) outcomes.set(request, failed(diskFull()));
      else admitted.push(request);
    }
    try {
      this.#commitTogether(admitted, outcomes);
    } catch {
      for (const request of admitted) this.#commitAlone(request, outcomes);
    }
    return requests.map((request) => outcomes.get(request) ?? failed(new Error("a request was left out")));
  }

  #commitAlone(request: WriteRequest, outcomes: Map<WriteRequest, WriteOutcome>): void {
    try {
      try {
        this.#commitTogether([request], outcomes);
      } catch (error) {
        if (sqliteFailure(error) !== "full" || !request.essential) throw error;
        releaseReserve(this.#files);
        this.#foldLog();
        this.#commitTogether([request], outcomes);
      }
    } catch (error) {
      outcomes.set(request, failed(error));
    }
  }

  /** The next write then starts the log from the beginning, in the space that it already has, even if the disk is full. */
  #foldLog(): void {
    try {
      this.#database.exec("PRAGMA wal_checkpoint(PASSIVE)");
    } catch {
      // The database file must grow. Only another attempt shows whether the write fits.
    }
  }

  /** Creates the reserve again once there is space, because the next write may find the disk full. */
  restoreReserve(): void {
    try {
      makeReserve(this.#files);
    } catch {
      // Housekeeping tries again, and reports errors.
    }
  }

  /** @throws the error that rolled back the transaction, and with it all requests */
  #commitTogether(requests: readonly WriteRequest[], outcomes: Map<WriteRequest, WriteOutcome>): void {
    try {
      const begun = this.#begin(requests, outcomes);
      if (begun.length === 0) return;
      const settled = begun.map((request) => [request, this.#apply(request, begun.length > 1)] as const);
      // A request without neighbors that failed has rolled back the transaction.
      if (this.#database.isTransaction) this.#database.exec("COMMIT");
      for (const [request, outcome] of settled) outcomes.set(request, outcome);
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
      throw error;
    }
  }

  /**
   * Takes the write lock. If others hold it past the deadline of some requests, those are rejected and the rest is
   * handed back, so that no response waits for a request with a later deadline. A request that is late because this
   * process had no CPU time is still served.
   */
  #begin(
    requests: readonly WriteRequest[],
    outcomes: Map<WriteRequest, WriteOutcome>,
  ): readonly WriteRequest[] {
    for (;;) {
      try {
        this.#database.exec("BEGIN IMMEDIATE");
        return requests;
      } catch (error) {
        if (sqliteFailure(error) !== "busy") throw error;
      }
      const now = monotonicMs();
      const late = requests.filter(({ deadlineMs }) => deadlineMs <= now);
      if (late.length === 0) continue;
      for (const request of requests) outcomes.set(request, { postponed: true });
      for (const request of late) outcomes.set(request, failed(busyTooLong));
      return [];
    }
  }

  /**
   * Runs one request inside the transaction. A failure undoes its own statements only.
   * @param hasNeighbours if false, no savepoint is used: its journal takes as long as the writes themselves
   * @throws the error that undid the whole transaction
   */
  #apply(request: WriteRequest, hasNeighbours: boolean): WriteOutcome {
    if (hasNeighbours) this.#database.exec("SAVEPOINT request");
    let failure: WriteFailure | undefined;
    const results: StatementResult[] = [];
    for (const [index, statement] of request.statements.entries()) {
      try {
        const result = this.#run(statement);
        results.push(result);
        if (statement.changes !== undefined && statement.changes !== result.changes) {
          const message = `statement ${index} changed ${result.changes} rows and not ${statement.changes}`;
          failure = { kind: "conflict", statementIndex: index, reason: "changes", message };
        }
      } catch (error) {
        if (!this.#database.isTransaction || sqliteFailure(error) === "full") throw error;
        failure = statementFailure(error, index);
      }
      if (failure !== undefined) break;
    }
    if (!hasNeighbours) {
      if (failure !== undefined) this.#database.exec("ROLLBACK");
    } else {
      if (failure !== undefined) this.#database.exec("ROLLBACK TO request");
      this.#database.exec("RELEASE request");
    }
    return failure === undefined ? { results } : { failure };
  }

  #run({ sql, params = [], columns }: Statement): StatementResult {
    const statement = this.#statements.prepare(sql);
    if (columns !== undefined) return runEach(statement, params, columns);
    if (statement.columns().length === 0) {
      const { changes, lastInsertRowid } = statement.run(...params);
      return { changes: Number(changes), lastInsertRowid: Number(lastInsertRowid) };
    }
    const rows = statement.all(...params) as Row[];
    const last = this.#statements.prepare("SELECT last_insert_rowid() AS id").get();
    return { changes: rows.length, lastInsertRowid: Number(last?.["id"]), rows };
  }

  /** Folds the write-ahead log into the database if no other connection is left. */
  [Symbol.dispose](): void {
    this.#database.close();
  }
}

function runEach(
  statement: StatementSync,
  params: readonly SqlValue[],
  columns: readonly (readonly SqlValue[])[],
): StatementResult {
  const result: StatementResult = { changes: 0, lastInsertRowid: 0 };
  const [first = []] = columns;
  const values = [...params];
  for (let row = 0; row < first.length; row += 1) {
    for (const [at, column] of columns.entries()) values[params.length + at] = column[row] ?? null;
    const { changes, lastInsertRowid } = statement.run(...values);
    result.changes += Number(changes);
    result.lastInsertRowid = Number(lastInsertRowid);
  }
  return result;
}

const busyTooLong = new SvcError(
  "unavailable",
  "the store was busy with other writes for too long; nothing was changed; try again",
);

function statementFailure(error: unknown, statementIndex: number): WriteFailure {
  const reason = sqliteFailure(error);
  if (reason !== "unique" && reason !== "constraint") return errorMessage(storeError(error));
  return { kind: "conflict", statementIndex, reason, message: (error as Error).message };
}

function failed(error: unknown): WriteOutcome {
  return { failure: errorMessage(storeError(error)) };
}
