/** Messages between the store's thread and its worker threads; everything survives structured cloning. */
import { inspect } from "node:util";
import type { ErrorDetailReason } from "../../gen/svc/v1/values.ts";
import { SvcError } from "../errors.ts";
import { storeError } from "./sqlite-failure.ts";

/** Values that SQLite can store in a column. */
export type SqlValue = null | number | bigint | string | Uint8Array;

/** A row as SQLite returns it, by column name. */
export type Row = Record<string, SqlValue>;

/** One statement of a write. */
export interface Statement {
  sql: string;
  /** For the `?` of `sql`, in order. */
  params?: readonly SqlValue[];
  /**
   * Runs the statement once per row of `columns`, whose values come after `params`. Columns, because a message
   * of a few long lists costs a sixth of a message of many short lists.
   */
  columns?: readonly (readonly SqlValue[])[];
  /**
   * The number of rows that it must change (or return, with `RETURNING` or `SELECT`) in all its runs. Any other number
   * undoes the whole write.
   */
  changes?: number;
}

/** The result of one statement. */
export interface StatementResult {
  /** Changed rows; with `RETURNING` or `SELECT`, returned rows. */
  changes: number;
  /** The rowid of the last row that this connection inserted, with this or an earlier statement. */
  lastInsertRowid: number;
  /** The rows of `RETURNING` or `SELECT`. */
  rows?: Row[];
}

/** A list of statements that is committed completely or not at all. */
export interface WriteRequest {
  statements: readonly Statement[];
  /** May use the reserved space on a full disk. */
  essential: boolean;
  /** Gives up if the write has not started by then, in milliseconds of the monotonic clock. */
  deadlineMs: number;
}

/** Why nothing of a write was stored. */
export type WriteFailure =
  { kind: "conflict"; statementIndex: number; reason: ConflictReason; message: string } | ErrorMessage;

/** `changes`: not the expected number of rows. `unique`: a key already exists. `constraint`: CHECK, NOT NULL or foreign key. */
export type ConflictReason = "changes" | "unique" | "constraint";

/** A SvcError sent between threads, with its cause as text. */
export interface ErrorMessage {
  kind: "error";
  reason: ErrorDetailReason;
  message: string;
  cause?: string;
}

/** `postponed`: not started and not too late either; send it again. */
export type WriteOutcome = { results: StatementResult[] } | { failure: WriteFailure } | { postponed: true };

/** Sent to the writer. One batch at a time, answered with one outcome per request; `close` is answered by the thread's exit. */
export type WriterCommand = { kind: "batch"; requests: WriteRequest[] } | { kind: "close" };

/** Sent by the writer. */
export interface WriterReply {
  outcomes: WriteOutcome[];
}

/** How a corrupt or lost database was replaced. */
export interface Restoration {
  /** The problem that was found. */
  problem: string;
  /** Path of the damaged database; absent if the file was missing. */
  quarantine?: string;
  /** When the restored snapshot was taken, in unix milliseconds. */
  snapshotAtMs: number;
}

/** A task of a short-lived worker. */
export type MaintenanceTask =
  /** Inspects a database too large for the calling thread. Answers `inspected`, then `compared` if the database is sound. */
  | { kind: "inspect" }
  /** Creates, restores or migrates the database as needed. The caller holds the lock exclusively. */
  | { kind: "prepare"; nowMs: number }
  /** Updates the snapshot and creates the reserve, if either is due. */
  | { kind: "housekeep" };

export type MaintenanceReply =
  | { kind: "inspected"; corrupt: boolean }
  /** The index was compared with its table; `mended`: the problem, if it was rebuilt. */
  | { kind: "compared"; repaired?: string }
  | { kind: "prepared"; restoration?: Restoration }
  | { kind: "housekept" }
  | ErrorMessage;

/** How a worker thread is started. */
export type WorkerRole =
  | { role: "writer"; dir: string }
  | { role: "maintenance"; dir: string; migrations: readonly string[]; task: MaintenanceTask };

/** Milliseconds of a clock that never jumps and is the same in every thread of the process. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}

/** An error to send to another thread, where an object arrives without its class. */
export function errorMessage(error: unknown): ErrorMessage {
  const { reason, message, cause } = storeError(error);
  return {
    kind: "error",
    reason,
    message,
    ...(cause === undefined ? {} : { cause: inspect(cause) }),
  };
}

export function receivedError({ reason, message, cause }: ErrorMessage): SvcError {
  return new SvcError(reason, message, cause === undefined ? {} : { cause });
}
