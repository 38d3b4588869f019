/** Where an archive lies until it is whole: files of the daemon's own, gone with the process that made them. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rm, statfs, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { SvcError } from "../errors.ts";
import { giveBack } from "../lib/give-back.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { isExecutorAlive, type Executor } from "../store/executors.ts";
import type { BackupRoom } from "./backup-quota.ts";
import { diskError } from "./storages/local-storage.ts";

/** What has to stay free for everything else on the file system. */
const reserveBytes = 64 << 20;
/** How often that is looked at, in bytes written; and how often what is kept begins its way to the disk. */
const checkEveryBytes = 32 << 20;

export interface SpoolFileOptions {
  /** What its bytes are taken of. */
  room?: BackupRoom | undefined;
  /** What it will come to, where that is known. */
  expectedBytes?: number;
  /** What it leaves free beyond what all have to: who can wait gives way to who cannot. */
  spareBytes?: number;
  /** Whether it becomes a file of this host, which has to be on the disk then: it begins its way there while it is written. */
  isKept?: boolean;
}

/** Some of a file. */
export interface SpoolBlock {
  bytes: Buffer<ArrayBuffer>;
  /** Whether nothing comes behind it. */
  isEnd: boolean;
}

export class Spool {
  readonly #dir: string;
  readonly #executor: Executor;

  constructor(dir: string, executor: Executor) {
    this.#dir = dir;
    this.#executor = executor;
  }

  /** @throws SvcError `disk_full`, already when there is no room for what is expected */
  async create(options: SpoolFileOptions = {}): Promise<SpoolFile> {
    const { expectedBytes = 0, spareBytes = 0 } = options;
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await requireRoom(this.#dir, expectedBytes + spareBytes);
    const { bootId, pid, startTicks } = this.#executor;
    const path = join(this.#dir, `${bootId}_${pid}_${startTicks}_${randomUUID()}`);
    return new SpoolFile(this.#dir, path, await open(path, "wx+", 0o600), options);
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
  readonly #options: SpoolFileOptions;
  #uncheckedBytes = 0;
  #isWhole = false;
  /** Resolves when there is more of it, or it is whole. */
  #growth = Promise.withResolvers<undefined>();
  #writingBack: Promise<void> | undefined;
  /** The kernel says once that something did not reach the disk. */
  #lost: { error: unknown } | undefined;
  sizeBytes = 0;

  constructor(dir: string, path: string, handle: FileHandle, options: SpoolFileOptions) {
    this.#dir = dir;
    this.path = path;
    this.#handle = handle;
    this.#options = options;
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** @throws SvcError `disk_full`, `too_many` when whose it is may have no more */
  async append(...pieces: Uint8Array[]): Promise<void> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    await this.#options.room?.take(bytes);
    try {
      const { bytesWritten } = await this.#handle.writev(pieces);
      // A disk that is full takes what it has room for, and says so the next time.
      if (bytesWritten < bytes) await this.#handle.appendFile(Buffer.concat(pieces).subarray(bytesWritten));
    } catch (error) {
      throw diskError(error);
    }
    this.sizeBytes += bytes;
    this.#grow();
    this.#uncheckedBytes += bytes;
    if (this.#uncheckedBytes < checkEveryBytes) return;
    this.#uncheckedBytes = 0;
    if (this.#options.isKept === true) this.#writingBack ??= this.#writeBack();
    await requireRoom(this.#dir, this.#options.spareBytes ?? 0);
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

  /** Nothing is appended any more. @throws SvcError `disk_full`, or why some of it did not reach the disk */
  async end(): Promise<void> {
    await this.#writingBack;
    if (this.#lost !== undefined) throw diskError(this.#lost.error);
    this.#isWhole = true;
    this.#grow();
  }

  /** Resolves when it is. */
  async whole(signal: AbortSignal): Promise<void> {
    while (!this.#isWhole) await unlessAborted(this.#growth.promise, signal);
  }

  /** All of it from its beginning, also while it is being written: blocks of so many bytes, but for the last. Each has memory of its own. */
  async *blocks(blockBytes: number, signal: AbortSignal): AsyncGenerator<SpoolBlock> {
    for (let position = 0; position < this.sizeBytes || !this.#isWhole;) {
      signal.throwIfAborted();
      const leftBytes = this.sizeBytes - position;
      // Only what something comes behind is not the last.
      if (leftBytes <= blockBytes && !this.#isWhole) {
        await unlessAborted(this.#growth.promise, signal);
        continue;
      }
      const bytes = Buffer.allocUnsafeSlow(Math.min(blockBytes, leftBytes));
      for (let filled = 0; filled < bytes.length;) {
        const { bytesRead } = await this.#handle.read(bytes, filled, bytes.length - filled, position);
        if (bytesRead === 0) throw new Error("the file became shorter");
        filled += bytesRead;
        position += bytesRead;
      }
      yield { bytes, isEnd: this.#isWhole && position === this.sizeBytes };
    }
  }

  #grow(): void {
    this.#growth.resolve(undefined);
    this.#growth = Promise.withResolvers();
  }

  async #writeBack(): Promise<void> {
    try {
      await this.#handle.datasync();
    } catch (error) {
      this.#lost ??= { error };
    } finally {
      this.#writingBack = undefined;
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
