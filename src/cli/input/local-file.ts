/** Local files that are sent to the daemon. */
import { open, readFile } from "node:fs/promises";
import type { Readable } from "node:stream";
import { UnusableFileError } from "../output/failure.ts";
import type { CliHost } from "../host.ts";
import { text } from "node:stream/consumers";

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
      throw new UnusableFileError(`cannot use ${path}: is a directory`);
    }
    const bytes = file.createReadStream({ highWaterMark: pieceBytes });
    return { bytes, sizeBytes: found.isFile() ? found.size : undefined };
  } catch (error) {
    throw localError(error, path);
  }
}

const words: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  ENOTDIR: "a parent is not a directory",
  EACCES: "permission denied",
  EISDIR: "is a directory",
  EEXIST: "file exists",
  ENOSPC: "the disk is full",
  EROFS: "the file system is read-only",
};

/** Why a local file cannot be used; undefined for other errors. */
export function fileProblem(error: unknown): string | undefined {
  const { code, syscall } = error as NodeJS.ErrnoException;
  return syscall === undefined || code === undefined ? undefined : (words[code] ?? code);
}

/** Node decodes arguments as UTF-8, so other bytes of a name are lost. */
const lostBytes = "the name is not UTF-8; send the content as standard input: svc file put - PATH < FILE";

/** Converts a failure of a local file to an error that the user can fix. */
export function localError(error: unknown, file: string): unknown {
  const problem = fileProblem(error);
  const trouble = problem === words["ENOENT"] && file.includes("\ufffd") ? lostBytes : problem;
  return trouble === undefined ? error : new UnusableFileError(`cannot use ${file}: ${trouble}`);
}

/** @param path `-` for stdin @throws UsageError if the file cannot be read */
export async function readInput(host: CliHost, path: string): Promise<string> {
  if (path === "-") return text(host.stdin);
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new UnusableFileError(`cannot read ${path}: ${fileProblem(error) ?? String(error)}`);
  }
}
