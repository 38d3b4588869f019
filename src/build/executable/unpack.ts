/** Brings the files of the single executable to a disk, once for each version. */
import { createHash } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
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

/**
 * @param places the first in which they lie is taken; they are written into the last
 * @returns the directory
 * @throws Error where somebody else could have written into it
 */
export function unpackOnce(packed: Packed, places: readonly Place[], { isChecked }: UnpackOptions): string {
  const own = places.at(-1);
  if (own === undefined) throw new RangeError("there is no place to unpack to");
  const umask = process.umask(0o022);
  try {
    for (const place of places) {
      const dir = join(place.base, packed.id);
      if (!isThere(dir)) continue;
      for (const path of [dirname(place.base), place.base, dir]) requireSafe(path, place.uid);
      if (isChecked && place === own) mend(packed, dir);
      return dir;
    }
    return write(packed, own);
  } finally {
    process.umask(umask);
  }
}

function write(packed: Packed, { base, uid }: Place): string {
  const dir = join(base, packed.id);
  mkdirSync(base, { recursive: true, mode: 0o755 });
  for (const path of [dirname(base), base]) requireSafe(path, uid);
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
    return createHash("sha256").update(readFileSync(path)).digest("hex");
  } catch {
    return undefined;
  }
}

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function requireSafe(path: string, uid: number): void {
  const stats = lstatSync(path);
  if (!stats.isDirectory() || stats.uid !== uid || (stats.mode & 0o022) !== 0)
    throw new Error(`${path} is not a directory that uid ${uid} alone may write`);
}
