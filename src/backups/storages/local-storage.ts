/** Archives in a directory of the daemon's own: one directory per app in it. */
import { constants } from "node:fs";
import { copyFile, link, lstat, mkdir, open, readdir, rm, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { notFound, SvcError } from "../../errors.ts";
import { hasCode } from "../../identity/helper/request-error.mjs";
import { syncDirectory } from "../../identity/owned-dir.ts";
import type { BytePacer } from "../../lib/byte-pacer.ts";
import { parseArchiveName } from "../archive-name.ts";
import type { ArchiveKey, Storage, StoredArchive, StoredFile, TransferOptions } from "./storage.ts";

const pieceBytes = 256 << 10;

export class LocalStorage implements Storage {
  readonly #dir: string;
  readonly #selfUid: number;
  readonly #pacer: BytePacer | undefined;

  /** @param dir made when it is missing */
  constructor(dir: string, selfUid: number, pacer?: BytePacer) {
    this.#dir = dir;
    this.#selfUid = selfUid;
    this.#pacer = pacer;
  }

  async list(appId: string | undefined): Promise<StoredArchive[]> {
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

  async put(
    { appId, name }: ArchiveKey,
    file: string,
    { signal, onProgress }: TransferOptions,
  ): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#requireOwn();
    const dir = join(this.#dir, appId);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const target = join(dir, name);
    if (!(await linkInto(dir, file, target))) await this.#copy(file, temporaryIn(dir, name), target, signal);
    await syncDirectory(dir);
    await syncDirectory(this.#dir);
    onProgress?.((await stat(target)).size);
  }

  async open({ appId, name }: ArchiveKey): Promise<StoredFile> {
    return openLocalFile(join(this.#dir, appId, name), this.#pacer).catch((error: unknown) => {
      throw hasCode(error, "ENOENT") ? notFound("backup", name) : error;
    });
  }

  async remove({ appId, name }: ArchiveKey): Promise<void> {
    await rm(join(this.#dir, appId, name), { force: true });
  }

  async abandon({ appId, name }: ArchiveKey): Promise<void> {
    await rm(temporaryIn(join(this.#dir, appId), name), { force: true });
  }

  /** On another file system: a copy under another name until it is whole. */
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

  /** Whoever may write there could put anything in the place of an archive. */
  async #requireOwn(): Promise<void> {
    const { uid, mode } = await stat(this.#dir);
    if (uid === this.#selfUid && (mode & 0o022) === 0) return;
    const message = `${this.#dir} must belong to uid ${this.#selfUid} and be writable by nobody else (chmod go-w)`;
    throw new SvcError("not_possible", message);
  }
}

/** Gives a file a second name, once it is on the disk. False where it cannot have one there. */
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

/** Found again by its archive's name. */
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

/** A file of the daemon's own. */
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
        if (bytesRead === 0) throw new Error("the file became shorter");
        position += bytesRead;
        await pacer?.take(bytesRead, signal);
        yield buffer.subarray(0, bytesRead);
      }
    },
    [Symbol.asyncDispose]: () => file.close(),
  };
}

/** @throws SvcError `disk_full`; else what it was */
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
