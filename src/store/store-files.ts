/**
 * The files of a store and their ownership. The checks never open a file: closing a file descriptor of an SQLite
 * database drops every lock that this process holds on it (sqlite.org/howtocorrupt.html, 2.2).
 */
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fsyncSync,
  lstatSync,
  openSync,
  readdirSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import { SvcError } from "../errors.ts";
import { makeDirectory } from "../lib/make-directory.ts";

/** Absolute paths of everything that a store keeps in its directory. */
export interface StoreFiles {
  dir: string;
  database: string;
  /** The last good snapshot of the database. */
  snapshot: string;
  /** The last snapshot without a damaged row, while the database has one. */
  wholeSnapshot: string;
  /** Held shared by every process that has the store open, exclusively by a process that repairs or migrates it. */
  lock: string;
  /** Disk space for essential writes; see reserve.ts. */
  reserve: string;
}

export function storeFiles(dir: string): StoreFiles {
  return {
    dir,
    database: join(dir, "svc.db"),
    snapshot: join(dir, "svc.db.bak"),
    wholeSnapshot: join(dir, "svc.db.whole"),
    lock: join(dir, "svc.lock"),
    reserve: join(dir, "reserve"),
  };
}

/** Suffixes of SQLite's files beside a database: its write-ahead log and the log's index. */
export const companionSuffixes = ["-wal", "-shm"] as const;

/** Prefix of temporary files until they are complete; a crash may leave them behind. */
const temporaryPrefix = "svc.db.tmp-";

/**
 * Creates the directory if needed, and checks that nobody else can put files in it, and that the store's files are
 * regular files of this user, readable only by this user.
 *
 * A missing directory is created with mode 0700, or 0711 for root: apps live below it and their owners must be able to
 * reach them.
 * @throws SvcError `not_possible` if a file is a link or belongs to another user
 */
export async function secureStoreFiles(files: StoreFiles): Promise<void> {
  const uid = process.geteuid?.() ?? 0;
  await makeDirectory(files.dir, uid === 0 ? 0o711 : 0o700);
  // Synchronous: each asynchronous check takes ten times as long, and no client is served yet.
  const dir = lstatSync(files.dir);
  if (!dir.isDirectory()) throw refused(files.dir, "is not a directory of its own");
  if (dir.uid !== uid) throw refused(files.dir, `belongs to uid ${dir.uid} and not to uid ${uid}`);
  if ((dir.mode & 0o022) !== 0) chmodSync(files.dir, dir.mode & 0o7755);
  const plainFiles = [
    files.database,
    ...companionSuffixes.map((suffix) => files.database + suffix),
    files.snapshot,
    files.wholeSnapshot,
    files.lock,
    files.reserve,
  ];
  for (const path of plainFiles) securePlainFile(path, uid);
}

function securePlainFile(path: string, uid: number): void {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isFile()) throw refused(path, "is not a plain file");
  if (stats.nlink > 1) throw refused(path, "has several hard links");
  if (stats.uid !== uid) throw refused(path, `belongs to uid ${stats.uid} and not to uid ${uid}`);
  if ((stats.mode & 0o077) !== 0) chmodSync(path, 0o600);
}

function refused(path: string, problem: string): SvcError {
  return new SvcError("not_possible", `${path} ${problem}; move it away and start again`);
}

/** Creates an empty file that only its owner may read, whatever the umask; @throws EEXIST, for a dangling link too */
export function createOwnerOnly(path: string): void {
  const fd = openSync(path, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600);
  try {
    fchmodSync(fd, 0o600);
  } finally {
    closeSync(fd);
  }
}

/** Makes a rename or a new name in `path`'s directory, or the content of the file `path`, survive a power cut. */
export function fsyncPath(path: string): void {
  const fd = openSync(path, constants.O_RDONLY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

const leftoverAgeMs = 3_600_000;

/** A unique name in the store's directory, for a file that is renamed into place when it is complete. */
export function temporaryPath(files: StoreFiles): string {
  return join(files.dir, temporaryPrefix + randomBytes(8).toString("hex"));
}

/** Removes files that killed processes left behind. Files younger than an hour may still be in use. */
export function removeLeftovers(files: StoreFiles, nowMs: number): void {
  for (const name of readdirSync(files.dir)) {
    if (!name.startsWith(temporaryPrefix)) continue;
    const path = join(files.dir, name);
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && nowMs - stats.mtimeMs > leftoverAgeMs) rmSync(path, { force: true });
  }
}
