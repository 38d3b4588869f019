/** Unpacks the files of the single executable to disk, once per version. */
import { hash } from "node:crypto";
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

export interface PackedFile {
  /** Path relative to the directory. */
  readonly path: string;
  readonly mode: number;
  /** SHA-256 as hexadecimal. */
  readonly sum: string;
}

export interface Packed {
  /** Name of the directory: a checksum of all files. */
  readonly id: string;
  readonly files: readonly PackedFile[];
  readonly content: (path: string) => Uint8Array;
}

/** Helper programs of this version, or of an older one that still runs after an upgrade of the executable. */
const ownProgram =
  /^(\/.*\/svc\/programs\/[0-9a-f]{64})\/(?:(?:run-as|identity)\/helper|runtimes\/process\/supervisor)\.[cm]js$/;

/** The directory of the unpacked files if `path` is a helper program that svc starts as `process.execPath PATH …`. */
export function ownProgramDir(path: string): string | undefined {
  return ownProgram.exec(path)?.[1];
}

export interface UnpackLocation {
  readonly base: string;
  /** Required owner. */
  readonly uid: number;
}

export interface UnpackOptions {
  /** Whether to verify each file's checksum, and rewrite files that differ. */
  readonly isChecked: boolean;
}

/** Longer than any unpacking takes. */
const leftOverMs = 60 * 60_000;

/**
 * @param locations the first that contains the files is used; otherwise they are unpacked to the last, which belongs to
 *   this user
 * @returns the directory
 * @throws Error if another user could have written to it
 */
export function unpackOnce(
  packed: Packed,
  locations: readonly UnpackLocation[],
  { isChecked }: UnpackOptions,
): string {
  const own = locations.at(-1);
  if (own === undefined) throw new RangeError("there is no place to unpack to");
  const umask = process.umask(0o022);
  try {
    for (const { base, uid } of locations.slice(0, -1)) {
      const dir = join(base, packed.id);
      if ([dirname(base), base, dir].every((path) => isSafe(path, uid))) return dir;
    }
    const dir = join(own.base, packed.id);
    if (!isThere(dir)) return write(packed, own);
    const wasOpen = closeToOthers(own);
    requireSafe(dir, own.uid);
    if (isChecked || wasOpen) repair(packed, dir);
    return dir;
  } finally {
    process.umask(umask);
  }
}

function write(packed: Packed, location: UnpackLocation): string {
  const { base } = location;
  const dir = join(base, packed.id);
  mkdirSync(base, { recursive: true, mode: 0o755 });
  closeToOthers(location);
  forgetLeftOvers(base);
  const fresh = mkdtempSync(join(base, ".new-"));
  try {
    const tree = join(fresh, packed.id);
    mkdirSync(tree, { mode: 0o755 });
    for (const file of packed.files) put(packed, tree, file);
    renameSync(tree, dir);
  } catch (error) {
    // Another command was faster.
    if (!["ENOTEMPTY", "EEXIST"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return dir;
}

function repair(packed: Packed, dir: string): void {
  for (const file of packed.files) if (sumOf(join(dir, file.path)) !== file.sum) put(packed, dir, file);
}

function put({ content }: Packed, dir: string, { path, mode, sum }: PackedFile): void {
  const target = join(dir, path);
  mkdirSync(dirname(target), { recursive: true, mode: 0o755 });
  const fresh = `${target}.${process.pid}`;
  // Left by an earlier process with this PID.
  rmSync(fresh, { force: true });
  const descriptor = openSync(fresh, "wx", mode);
  try {
    writeFileSync(descriptor, content(path));
    // The directory must contain complete files, even after a power failure.
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  if (sumOf(fresh) !== sum) throw new Error(`${fresh} is not what was built`);
  renameSync(fresh, target);
}

function sumOf(path: string): string | undefined {
  try {
    return hash("sha256", readFileSync(path));
  } catch {
    return undefined;
  }
}

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Removes leftovers of killed commands. */
function forgetLeftOvers(base: string): void {
  for (const name of readdirSync(base).filter((entry) => entry.startsWith(".new-"))) {
    const path = join(base, name);
    const { mtimeMs = Infinity } = lstatSync(path, { throwIfNoEntry: false }) ?? {};
    if (mtimeMs < Date.now() - leftOverMs) rmSync(path, { recursive: true, force: true });
  }
}

/**
 * Restricts a directory created under a umask of 002 to its owner. @returns whether another user could write to it
 */
function closeToOthers({ base, uid }: UnpackLocation): boolean {
  let wasOpen = false;
  for (const path of [dirname(base), base]) {
    if (isSafe(path, uid)) continue;
    wasOpen = true;
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    try {
      const stats = fstatSync(descriptor);
      if (stats.uid === uid) fchmodSync(descriptor, stats.mode & 0o7755);
    } finally {
      closeSync(descriptor);
    }
    requireSafe(path, uid);
  }
  return wasOpen;
}

function requireSafe(path: string, uid: number): void {
  if (!isSafe(path, uid)) throw new Error(`${path} is not a directory that only uid ${uid} can write to`);
}

/** A directory that cannot be inspected is not safe. */
function isSafe(path: string, uid: number): boolean {
  try {
    const stats = lstatSync(path);
    return stats.isDirectory() && stats.uid === uid && (stats.mode & 0o022) === 0;
  } catch {
    return false;
  }
}
