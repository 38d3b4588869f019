/** What the store's thread and its worker threads say to each other; everything survives structured cloning. */
import type { ErrorDetailReason } from "../../gen/svc/v1/words.ts";

/** What SQLite can keep in a column. */
export type SqlValue = null | number | bigint | string | Uint8Array;

/** A row as SQLite answers it, by column name. */
export type Row = Record<string, SqlValue>;

/** One statement of a write. */
export interface Statement {
  sql: string;
  /** For the `?` of `sql`, in order. */
  params?: readonly SqlValue[];
  /**
   * Runs it once for each row of these columns, whose values come behind `params`. Columns, as a message of a few long lists
   * costs a sixth of one of many short ones.
   */
  columns?: readonly (readonly SqlValue[])[];
  /**
   * How many rows it must change (or return, with `RETURNING` or `SELECT`), in all of its runs; any other number undoes the
   * whole write.
   */
  changes?: number;
}

/** What one statement did. */
export interface StatementResult {
  /** Rows that it changed; with `RETURNING` or `SELECT`, rows that it returned. */
  changes: number;
  /** The rowid of the last row that this connection inserted, by this statement or an earlier one. */
  lastInsertRowid: number;
  /** The rows of `RETURNING` or `SELECT`. */
  rows?: Row[];
}

/** A list of statements that is committed as a whole or not at all. */
export interface WriteRequest {
  statements: readonly Statement[];
  /** May use the last room on a full disk. */
  essential: boolean;
  /** When to give up if the write has not begun by then, in milliseconds of the monotonic clock. */
  deadlineMs: number;
}

/** Why nothing of a write was kept. */
export type WriteFailure =
  { kind: "conflict"; statementIndex: number; reason: ConflictReason; message: string } | ErrorMessage;

/** `changes`: not the expected number of rows. `unique`: a key is taken. `constraint`: CHECK, NOT NULL or a foreign key. */
export type ConflictReason = "changes" | "unique" | "constraint";

/** A SvcError on its way between threads; what caused it goes along as text. */
export interface ErrorMessage {
  kind: "error";
  reason: ErrorDetailReason;
  message: string;
  cause?: string;
}

/** `postponed`: not begun and not too late either; the writer wants to be asked again. */
export type WriteOutcome = { results: StatementResult[] } | { failure: WriteFailure } | { postponed: true };

/** To the writer: one batch at a time, answered with one outcome per request; `close` is answered with its exit. */
export type WriterCommand = { kind: "batch"; requests: WriteRequest[] } | { kind: "close" };

/** From the writer. */
export interface WriterReply {
  outcomes: WriteOutcome[];
}

/** How a corrupt or lost database was replaced. */
export interface Restoration {
  /** What was wrong. */
  problem: string;
  /** Where the damaged database is kept; absent when there was no file. */
  quarantine?: string;
  /** When the snapshot that took its place was made, in unix milliseconds. */
  snapshotAtMs: number;
}

/** What a short-lived worker does and ends. */
export type MaintenanceTask =
  /** Looks at a database too large for the calling thread: answers `inspected`, and where that is sound `compared` afterwards. */
  | { kind: "inspect" }
  /** Creates, restores, migrates: whatever the database needs. The caller holds the lock exclusively. */
  | { kind: "prepare"; nowMs: number }
  /** Brings the snapshot up to date and makes the reserve if either is due. */
  | { kind: "housekeep" };

export type MaintenanceReply =
  | { kind: "inspected"; corrupt: boolean }
  /** An index with its table; `mended`: what was wrong with it before it was made again. */
  | { kind: "compared"; mended?: string }
  | { kind: "prepared"; restoration?: Restoration }
  | { kind: "housekept" }
  | ErrorMessage;

/** What a worker thread is started with. */
export type WorkerRole =
  | { role: "writer"; dir: string }
  | { role: "maintenance"; dir: string; migrations: readonly string[]; task: MaintenanceTask };

/** Milliseconds of a clock that never steps and is the same in every thread of the process. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}
