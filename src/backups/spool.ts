/** Where an archive lies until it is whole: files of the daemon's own, gone with the process that made them. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rm, statfs, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { SvcError } from "../errors.ts";
import { giveBack } from "../lib/give-back.ts";
import { isExecutorAlive, type Executor } from "../store/executors.ts";
import type { BackupRoom } from "./backup-quota.ts";
import { diskError } from "./storages/local-storage.ts";

/** What has to stay free for everything else on the file system. */
const reserveBytes = 64 << 20;
/** How often that is looked at, in bytes written. */
const checkEveryBytes = 32 << 20;

export class Spool {
  readonly #dir: string;
  readonly #executor: Executor;

  constructor(dir: string, executor: Executor) {
    this.#dir = dir;
    this.#executor = executor;
  }

  /**
   * @param room what its bytes are taken of
   * @param expectedBytes what it will come to, where that is known
   * @throws SvcError `disk_full`, already when there is no room for as many
   */
  async create(room?: BackupRoom, expectedBytes = 0): Promise<SpoolFile> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await requireRoom(this.#dir, expectedBytes);
    const { bootId, pid, startTicks } = this.#executor;
    const path = join(this.#dir, `${bootId}_${pid}_${startTicks}_${randomUUID()}`);
    return new SpoolFile(this.#dir, path, await open(path, "wx", 0o600), room);
  }

  /** Removes what processes left behind that ended. */
  async sweep(): Promise<void> {
    for (const name of await readdir(this.#dir).catch(() => [])) {
      const [bootId = "", pid, startTicks] = name.split("_");
      const executor = { bootId, pid: Number(pid), startTicks: Number(startTicks) };
      if (!(await isExecutorAlive(executor))) await rm(join(this.#dir, name), { force: true });
    }
  }
}

export class SpoolFile implements AsyncDisposable {
  readonly path: string;
  readonly #dir: string;
  readonly #handle: FileHandle;
  readonly #room: BackupRoom | undefined;
  #uncheckedBytes = 0;
  sizeBytes = 0;

  constructor(dir: string, path: string, handle: FileHandle, room?: BackupRoom) {
    this.#dir = dir;
    this.path = path;
    this.#handle = handle;
    this.#room = room;
  }

  /** @throws SvcError `disk_full`, `too_many` when whose it is may have no more */
  async append(...pieces: Uint8Array[]): Promise<void> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    await this.#room?.take(bytes);
    try {
      const { bytesWritten } = await this.#handle.writev(pieces);
      // A disk that is full takes what it has room for, and says so the next time.
      if (bytesWritten < bytes) await this.#handle.appendFile(Buffer.concat(pieces).subarray(bytesWritten));
    } catch (error) {
      throw diskError(error);
    }
    this.sizeBytes += bytes;
    this.#uncheckedBytes += bytes;
    if (this.#uncheckedBytes < checkEveryBytes) return;
    this.#uncheckedBytes = 0;
    await requireRoom(this.#dir, 0);
  }

  /** Appends whatever is written to it, and gives its memory back. */
  writable(): Writable {
    return new Writable({
      highWaterMark: 1 << 20,
      write: (chunk: Buffer, _encoding, done) => {
        this.#appendOwn([chunk]).then(done, done);
      },
      // What came meanwhile goes to the disk together: each time costs more than the bytes do.
      writev: (chunks, done) => {
        this.#appendOwn(chunks.map(({ chunk }) => chunk as Buffer)).then(done, done);
      },
    });
  }

  /** Resolves when all of it is on the disk. */
  async sync(): Promise<void> {
    try {
      await this.#handle.sync();
    } catch (error) {
      throw diskError(error);
    }
  }

  async #appendOwn(pieces: Buffer[]): Promise<undefined> {
    await this.append(...pieces);
    for (const piece of pieces) giveBack(piece);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
    await rm(this.path, { force: true });
  }
}

/** @throws SvcError `disk_full` when the file system has no room for so many bytes more */
export async function requireRoom(dir: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  if (bavail * bsize >= bytes + reserveBytes) return;
  const message = "no space left for the backup; free some and try again";
  throw new SvcError("disk_full", message);
}
