/** Local files that are sent to the daemon. */
import { open } from "node:fs/promises";
import type { Readable } from "node:stream";
import { UnusableFileError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";

const pieceBytes = 256 << 10;

/** The opener must destroy it. */
export interface LocalFile {
  readonly bytes: Readable;
  /** Absent if unknown in advance. */
  readonly sizeBytes: number | undefined;
}

/** @param path `-` for standard input @throws UsageError if it cannot be read */
export async function openLocalFile(host: CliHost, path: string): Promise<LocalFile> {
  if (path === "-") return { bytes: host.stdin, sizeBytes: undefined };
  try {
    const file = await open(path);
    const found = await file.stat();
    // Opening a directory succeeds; only reading it fails.
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
  ENOTDIR: "a parent of it is not a directory",
  EACCES: "permission denied",
  EISDIR: "it is a directory",
  EEXIST: "it already exists",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** Why a local file cannot be used; undefined for other errors. */
export function fileProblem(error: unknown): string | undefined {
  const { code, syscall } = error as NodeJS.ErrnoException;
  return syscall === undefined || code === undefined ? undefined : (words[code] ?? code);
}

/** Converts a failure of a local file to an error that the user can fix. */
export function localError(error: unknown, file: string): unknown {
  const trouble = fileProblem(error);
  return trouble === undefined ? error : new UnusableFileError(`cannot use ${file}: ${trouble}`);
}
