/** Translates errors of node:sqlite for the store (result codes: sqlite.org/rescode.html). */
import { SvcError } from "../errors.ts";

/**
 * - `busy`: another process holds the lock.
 * - `full`: the disk is full.
 * - `disk`: the disk fails.
 * - `read-only`: the disk or the format of the file allows only reads.
 * - `corrupt`: the file is not a sound database.
 * - `statement`: the statement does not match the schema, or the schema cannot be read.
 */
export type SqliteFailure =
  "busy" | "full" | "disk" | "read-only" | "corrupt" | "statement" | "unique" | "constraint" | "other";

const SQLITE_ERROR = 1;
const SQLITE_BUSY = 5;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CONSTRAINT = 19;
const SQLITE_NOTADB = 26;
const SQLITE_CONSTRAINT_PRIMARYKEY = 1555;
const SQLITE_CONSTRAINT_UNIQUE = 2067;
const SQLITE_CONSTRAINT_ROWID = 2579;
/** The index of the write-ahead log could not grow. The only known cause is a full disk. */
const SQLITE_IOERR_SHMSIZE = 4874;

/** Undefined for errors that SQLite did not raise, except `ENOSPC` and `EDQUOT` of the file system. */
export function sqliteFailure(error: unknown): SqliteFailure | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, errcode } = error as Error & { code?: string; errcode?: number };
  if (code === "ENOSPC" || code === "EDQUOT") return "full";
  if (code !== "ERR_SQLITE_ERROR" || errcode === undefined) return undefined;
  switch (errcode) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_ROWID:
      return "unique";
    case SQLITE_IOERR_SHMSIZE:
      return "full";
  }
  // The low byte is the primary code, the rest gives details.
  switch (errcode & 0xff) {
    case SQLITE_ERROR:
      return "statement";
    case SQLITE_BUSY:
      return "busy";
    case SQLITE_FULL:
      return "full";
    case SQLITE_READONLY:
      return "read-only";
    case SQLITE_IOERR:
      return "disk";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "corrupt";
    case SQLITE_CONSTRAINT:
      return "constraint";
    default:
      return "other";
  }
}

/** Whether the store itself failed, which is reported with its own message, and not the request. */
export function isOfStore(error: unknown): boolean {
  const failure = sqliteFailure(error);
  return failure !== undefined && ["busy", "full", "disk", "read-only", "corrupt"].includes(failure);
}

/** The error for a caller: `unavailable`, `disk_full`, `data_loss` or `internal`, with `error` as its cause. */
export function storeError(error: unknown): SvcError {
  if (error instanceof SvcError) return error as SvcError;
  switch (sqliteFailure(error)) {
    case "busy":
      return new SvcError("unavailable", "the store is busy in another process; try again", {
        cause: error,
      });
    case "full":
      return diskFull(error);
    case "disk":
    case "read-only":
      return new SvcError(
        "unavailable",
        "the disk that holds the store fails or can only be read: see the kernel's log (dmesg), then try again",
        { cause: error },
      );
    case "corrupt":
      return new SvcError(
        "store_damaged",
        "the store's database is damaged; restart svc to bring back the last good snapshot",
        { cause: error },
      );
    default:
      return new SvcError("internal", "internal error in the store", { cause: error });
  }
}

export function diskFull(cause?: unknown): SvcError<"disk_full"> {
  return new SvcError(
    "disk_full",
    "the disk that holds the store is full; free some space or remove an app, then try again",
    { cause },
  );
}
