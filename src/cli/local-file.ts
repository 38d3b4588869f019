/** Files on this side that are sent to the daemon. */
import { open } from "node:fs/promises";
import type { Readable } from "node:stream";
import { UnusableFileError } from "./failure.ts";
import type { CliHost } from "./host.ts";

const pieceBytes = 256 << 10;

/** To be destroyed by who opens it. */
export interface LocalFile {
  readonly bytes: Readable;
  /** Absent where that is not known before. */
  readonly sizeBytes: number | undefined;
}

/** @param path `-` for standard input @throws UsageError when it cannot be read */
export async function openLocalFile(host: CliHost, path: string): Promise<LocalFile> {
  if (path === "-") return { bytes: host.stdin, sizeBytes: undefined };
  try {
    const file = await open(path);
    const found = await file.stat();
    // It opens, and fails at the first byte.
    if (found.isDirectory()) {
      await file.close();
      throw new UnusableFileError(`cannot use ${path}: it is a directory`);
    }
    const bytes = file.createReadStream({ highWaterMark: pieceBytes });
    return { bytes, sizeBytes: found.isFile() ? found.size : undefined };
  } catch (error) {
    throw localError(error, path);
  }
}

const words: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  ENOTDIR: "its directory is none",
  EACCES: "permission denied",
  EISDIR: "it is a directory",
  EEXIST: "it is there already",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** Why a file of this side cannot be used; undefined for another error than one of its own. */
export function fileTrouble(error: unknown): string | undefined {
  const { code, syscall } = error as NodeJS.ErrnoException;
  return syscall === undefined || code === undefined ? undefined : (words[code] ?? code);
}

/** A failure of this side's file is the user's to mend. */
export function localError(error: unknown, file: string): unknown {
  const trouble = fileTrouble(error);
  return trouble === undefined ? error : new UnusableFileError(`cannot use ${file}: ${trouble}`);
}
