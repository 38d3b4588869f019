/** Archives in a local directory that belongs to the daemon, with one directory per app. */
import { constants } from "node:fs";
import {
  copyFile,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  rm,
  rmdir,
  stat,
  type FileHandle,
} from "node:fs/promises";
import { join } from "node:path";
import { notFound, SvcError } from "../../errors.ts";
import { hasCode } from "../../run-as/helper/request-error.mjs";
import { syncDirectory } from "../../run-as/owned-dir.ts";
import { findReplaceable } from "../../sys/replaceable-path.ts";
import type { BytePacer } from "../../lib/byte-streams.ts";
import { parseArchiveName } from "../archives/archive-name.ts";
import type { ArchiveKey, Storage, StoredArchive, StoredFile, TransferOptions } from "./storage.ts";

const pieceBytes = 256 << 10;
/** Attempts to store an archive while another call removes the app's empty directory. */
const putAttempts = 5;

/** The cause of an error, with a directory that only root may see; regular users see the error without it. */
export class DirectoryProblem extends Error {}

export class LocalStorage implements Storage {
  readonly #name: string;
  readonly #dir: string;
  readonly #selfUid: number;
  readonly #pacer: BytePacer | undefined;
  readonly #isBesideStore: boolean;

  /**
   * @param name of the storage
   * @param dir created if missing
   * @param options `isBesideStore`: the directory is next to the daemon's database, so that write access to
   * one implies write access to both
   */
  constructor(
    name: string,
    dir: string,
    selfUid: number,
    options: { pacer?: BytePacer | undefined; isBesideStore?: boolean } = {},
  ) {
    this.#name = name;
    this.#dir = dir;
    this.#selfUid = selfUid;
    this.#pacer = options.pacer;
    this.#isBesideStore = options.isBesideStore ?? false;
  }

  async list(appId: string | undefined): Promise<StoredArchive[]> {
    await this.#requireOwn();
    const appIds = appId === undefined ? await namesIn(this.#dir) : [appId];
    const archives: StoredArchive[] = [];
    for (const id of appIds) {
      for (const name of await namesIn(join(this.#dir, id))) {
        const parsed = parseArchiveName(name);
        if (parsed?.appId !== id) continue;
        const stats = await lstat(join(this.#dir, id, name)).catch((error: unknown) => {
          if (!hasCode(error, "ENOENT")) throw error;
        });
        if (stats?.isFile() === true) archives.push({ ...parsed, name, sizeBytes: stats.size });
      }
    }
    return archives;
  }

  async count(namePrefix: string): Promise<number> {
    await this.#requireOwn();
    return (await namesIn(this.#dir)).filter((name) => name.startsWith(namePrefix)).length;
  }

  async put(
    { appId, name }: ArchiveKey,
    file: string,
    { signal, onProgress }: TransferOptions,
  ): Promise<void> {
    await this.#requireOwn();
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    // Another user may have created a missing directory in the meantime.
    await this.#requireOwn();
    const dir = join(this.#dir, appId);
    const target = join(dir, name);
    for (let attempt = 1; ; attempt++) {
      try {
        await mkdir(dir, { recursive: true, mode: 0o700 });
        if (!(await linkInto(dir, file, target)))
          await this.#copy(file, temporaryIn(dir, name), target, signal);
        break;
      } catch (error) {
        // Another call removed the app's last archive and its directory.
        if (!hasCode(error, "ENOENT") || attempt === putAttempts) throw error;
      }
    }
    await syncDirectory(dir);
    await syncDirectory(this.#dir);
    onProgress?.((await stat(target)).size);
  }

  async open({ appId, name }: ArchiveKey): Promise<StoredFile> {
    await this.#requireOwn();
    return openLocalFile(join(this.#dir, appId, name), this.#pacer).catch((error: unknown) => {
      throw hasCode(error, "ENOENT") ? notFound("backup", name) : error;
    });
  }

  async remove({ appId, name }: ArchiveKey): Promise<void> {
    await this.#requireOwn();
    await rm(join(this.#dir, appId, name), { force: true });
    await this.#removeEmpty(appId);
  }

  async abandon({ appId, name }: ArchiveKey): Promise<void> {
    await this.#requireOwn();
    await rm(temporaryIn(join(this.#dir, appId), name), { force: true });
    await this.#removeEmpty(appId);
  }

  async #removeEmpty(appId: string): Promise<void> {
    if (appId === "") return;
    await rmdir(join(this.#dir, appId)).catch((error: unknown) => {
      if (!hasCode(error, "ENOENT", "ENOTEMPTY", "EEXIST")) throw error;
    });
  }

  /** On another file system: copies under a temporary name, then renames. */
  async #copy(
    file: string,
    temporary: string,
    target: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    try {
      if (this.#pacer === undefined) await copyFile(file, temporary, constants.COPYFILE_EXCL);
      else await copyAtPace(file, temporary, this.#pacer, signal);
      signal?.throwIfAborted();
      await using copy = await open(temporary, "r+");
      await copy.sync();
      await link(temporary, target);
    } catch (error) {
      throw diskError(error);
    } finally {
      await rm(temporary, { force: true });
    }
  }

  /**
   * A user who can write to the directory or to a parent could replace archives, which root restores and runs, and could redirect
   * what root writes.
   */
  async #requireOwn(): Promise<void> {
    const status = await stat(this.#dir).catch((error: unknown) => {
      if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
    });
    const directory = `the directory of the storage "${this.#name}"`;
    if (status !== undefined && (status.uid !== this.#selfUid || (status.mode & 0o022) !== 0)) {
      const message = `${directory} must belong to uid ${this.#selfUid}, and no other user may write to it: run chown and chmod go-w on it`;
      throw new SvcError("not_possible", message, { cause: new DirectoryProblem(this.#dir) });
    }
    if (this.#isBesideStore) return;
    const replaceableDir = await findReplaceable(this.#dir, this.#selfUid);
    if (replaceableDir === undefined) return;
    const message = `other users can replace ${directory}: use one below which nobody else can write`;
    const cause = new DirectoryProblem(`they can change ${replaceableDir}, above ${this.#dir}`);
    throw new SvcError("not_possible", message, { cause });
  }
}

/** Hard-links a file after syncing it. False if the target does not support links to it. */
async function linkInto(dir: string, file: string, target: string): Promise<boolean> {
  if ((await stat(file)).dev !== (await stat(dir)).dev) return false;
  try {
    await using source = await open(file, "r+");
    await source.sync();
    await link(file, target);
    return true;
  } catch (error) {
    if (hasCode(error, "EXDEV", "EPERM", "EMLINK")) return false;
    throw diskError(error);
  }
}

/** The temporary name of an archive. */
function temporaryIn(dir: string, name: string): string {
  return join(dir, `.${name}.tmp`);
}

async function copyAtPace(
  file: string,
  to: string,
  pacer: BytePacer,
  signal: AbortSignal | undefined,
): Promise<void> {
  await using source = await open(file, "r");
  await using target: FileHandle = await open(to, "wx", 0o600);
  const buffer = Buffer.allocUnsafe(pieceBytes);
  for (;;) {
    const { bytesRead } = await source.read(buffer);
    if (bytesRead === 0) return;
    await pacer.take(bytesRead, signal);
    await target.appendFile(buffer.subarray(0, bytesRead));
  }
}

/** Opens a file that belongs to the daemon. */
export async function openLocalFile(path: string, pacer?: BytePacer): Promise<StoredFile> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  const { size } = await file.stat();
  return {
    sizeBytes: size,
    async *read(start, end, signal) {
      const until = Math.min(end, size);
      for (let position = start; position < until;) {
        signal?.throwIfAborted();
        const buffer = Buffer.allocUnsafe(Math.min(pieceBytes, until - position));
        const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
        if (bytesRead === 0) throw new Error("the file was truncated");
        position += bytesRead;
        await pacer?.take(bytesRead, signal);
        yield buffer.subarray(0, bytesRead);
      }
    },
    [Symbol.asyncDispose]: () => file.close(),
  };
}

/** Converts a full disk to SvcError `disk_full`; returns other errors unchanged. */
export function diskError(error: unknown): unknown {
  if (!hasCode(error, "ENOSPC", "EDQUOT")) return error;
  const message = "no space left for the backup; free some and try again";
  return new SvcError("disk_full", message, { cause: error });
}

async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
