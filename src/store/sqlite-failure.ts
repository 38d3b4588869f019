/** What an error of node:sqlite means to the store (result codes: sqlite.org/rescode.html). */
import { SvcError } from "../errors.ts";

/**
 * `busy`: another process holds the lock. `full`: no room on the disk. `disk`: it fails, or may be read only. `corrupt`: the file is
 * not a sound database.
 */
export type SqliteFailure = "busy" | "full" | "disk" | "corrupt" | "unique" | "constraint" | "other";

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
/** The index of the write-ahead log could not grow; nothing but a full disk was seen to cause it. */
const SQLITE_IOERR_SHMSIZE = 4874;

/** Undefined for what SQLite did not raise, `ENOSPC` and `EDQUOT` of the file system excepted. */
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
  // The low byte is the primary code, the rest says more about it.
  switch (errcode & 0xff) {
    case SQLITE_BUSY:
      return "busy";
    case SQLITE_FULL:
      return "full";
    case SQLITE_READONLY:
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

/** Whether it is the store's state that failed, which people are told in its words, and not what was asked of it. */
export function isOfStore(error: unknown): boolean {
  const failure = sqliteFailure(error);
  return failure !== undefined && ["busy", "full", "disk", "corrupt"].includes(failure);
}

/** The error for a caller: `unavailable`, `resource_exhausted`, `data_loss` or `internal`, with `error` as its cause. */
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
      return new SvcError("internal", "the store could not do this", { cause: error });
  }
}

export function diskFull(cause?: unknown): SvcError<"disk_full"> {
  return new SvcError(
    "disk_full",
    "the disk that holds the store is full; free some room or remove an app, then try again",
    { cause },
  );
}
