/** Brings the files of the single executable to a disk, once for each version. */
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
  /** Below the directory. */
  readonly path: string;
  readonly mode: number;
  /** SHA-256, in hexadecimal. */
  readonly sum: string;
}

export interface Packed {
  /** Names the directory: a sum over all files. */
  readonly id: string;
  readonly files: readonly PackedFile[];
  readonly content: (path: string) => Uint8Array;
}

export interface Place {
  readonly base: string;
  /** Whom it must belong to. */
  readonly uid: number;
}

export interface UnpackOptions {
  /** Whether each file is held against its sum, and written anew where it is another. */
  readonly isChecked: boolean;
}

/** No command takes as long to unpack. */
const leftOverMs = 60 * 60_000;

/**
 * @param places the first in which they lie is taken; they are written into the last, which belongs to whoever runs this
 * @returns the directory
 * @throws Error where somebody else could have written into it
 */
export function unpackOnce(packed: Packed, places: readonly Place[], { isChecked }: UnpackOptions): string {
  const own = places.at(-1);
  if (own === undefined) throw new RangeError("there is no place to unpack to");
  const umask = process.umask(0o022);
  try {
    for (const { base, uid } of places.slice(0, -1)) {
      const dir = join(base, packed.id);
      if ([dirname(base), base, dir].every((path) => isSafe(path, uid))) return dir;
    }
    const dir = join(own.base, packed.id);
    if (!isThere(dir)) return write(packed, own);
    const wasOpen = closeToOthers(own);
    requireSafe(dir, own.uid);
    if (isChecked || wasOpen) mend(packed, dir);
    return dir;
  } finally {
    process.umask(umask);
  }
}

function write(packed: Packed, place: Place): string {
  const { base } = place;
  const dir = join(base, packed.id);
  mkdirSync(base, { recursive: true, mode: 0o755 });
  closeToOthers(place);
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

function mend(packed: Packed, dir: string): void {
  for (const file of packed.files) if (sumOf(join(dir, file.path)) !== file.sum) put(packed, dir, file);
}

function put({ content }: Packed, dir: string, { path, mode, sum }: PackedFile): void {
  const target = join(dir, path);
  mkdirSync(dirname(target), { recursive: true, mode: 0o755 });
  const fresh = `${target}.${process.pid}`;
  // Of an earlier process of this number, which was ended.
  rmSync(fresh, { force: true });
  const descriptor = openSync(fresh, "wx", mode);
  try {
    writeFileSync(descriptor, content(path));
    // The directory's name promises whole files, after a power cut, too.
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

/** What commands that were ended have left. */
function forgetLeftOvers(base: string): void {
  for (const name of readdirSync(base).filter((entry) => entry.startsWith(".new-"))) {
    const path = join(base, name);
    const { mtimeMs = Infinity } = lstatSync(path, { throwIfNoEntry: false }) ?? {};
    if (mtimeMs < Date.now() - leftOverMs) rmSync(path, { recursive: true, force: true });
  }
}

/** A directory that was made under a umask of 002 is its owner's all the same. @returns whether somebody else could write */
function closeToOthers({ base, uid }: Place): boolean {
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
  if (!isSafe(path, uid)) throw new Error(`${path} is not a directory that uid ${uid} alone may write`);
}

/** What cannot be looked at is not. */
function isSafe(path: string, uid: number): boolean {
  try {
    const stats = lstatSync(path);
    return stats.isDirectory() && stats.uid === uid && (stats.mode & 0o022) === 0;
  } catch {
    return false;
  }
}
