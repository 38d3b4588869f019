/**
 * Temporary files for archives in progress. They belong to the daemon, and are removed with the process that
 * created them.
 */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rm, statfs, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { SvcError } from "../../errors.ts";
import { freeMemory } from "../../lib/buffer-pool.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { isExecutorAlive, type Executor } from "../../store/executors.ts";
import type { BackupSpace } from "../policies/backup-quota.ts";
import { diskError } from "../storages/local-storage.ts";

/** Bytes to keep free on the file system. */
const reserveBytes = 64 << 20;
/** Bytes written between two checks of free space, and between two write-backs of a permanent file. */
const checkEveryBytes = 32 << 20;

export interface SpoolFileOptions {
  /** The reservation for its bytes. */
  space?: BackupSpace | undefined;
  /** Expected size, if known. */
  expectedBytes?: number;
  /** Additional bytes to keep free, so that files that can wait do not block others. */
  spareBytes?: number;
  /** Whether it becomes a permanent file of this host. It is then flushed to disk while it is written. */
  isPermanent?: boolean;
}

/** A block of a file. */
export interface SpoolBlock {
  bytes: Buffer<ArrayBuffer>;
  /** Whether it is the last block. */
  isEnd: boolean;
}

export class Spool {
  readonly #dir: string;
  readonly #executor: Executor;

  constructor(dir: string, executor: Executor) {
    this.#dir = dir;
    this.#executor = executor;
  }

  /** @throws SvcError `disk_full`, also if the expected size does not fit */
  async create(options: SpoolFileOptions = {}): Promise<SpoolFile> {
    const { expectedBytes = 0, spareBytes = 0 } = options;
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await requireSpace(this.#dir, expectedBytes + spareBytes);
    const { bootId, pid, startTicks } = this.#executor;
    const path = join(this.#dir, `${bootId}_${pid}_${startTicks}_${randomUUID()}`);
    return new SpoolFile(this.#dir, path, await open(path, "wx+", 0o600), options);
  }

  /** Removes files of dead processes. */
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
  #isComplete = false;
  /** Resolves when the file grows or is complete. */
  #growth = Promise.withResolvers<undefined>();
  #writingBack: Promise<void> | undefined;
  /** The kernel reports a write-back error only once. */
  #writeBackFailure: { error: unknown } | undefined;
  sizeBytes = 0;

  constructor(dir: string, path: string, handle: FileHandle, options: SpoolFileOptions) {
    this.#dir = dir;
    this.path = path;
    this.#handle = handle;
    this.#options = options;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** @throws SvcError `disk_full`, `too_many` if the owner's quota is exceeded */
  async append(...pieces: Uint8Array[]): Promise<void> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    await this.#options.space?.take(bytes);
    try {
      const { bytesWritten } = await this.#handle.writev(pieces);
      // A full disk accepts a part, and fails at the next write.
      if (bytesWritten < bytes) await this.#handle.appendFile(Buffer.concat(pieces).subarray(bytesWritten));
    } catch (error) {
      throw diskError(error);
    }
    this.sizeBytes += bytes;
    this.#grow();
    this.#uncheckedBytes += bytes;
    if (this.#uncheckedBytes < checkEveryBytes) return;
    this.#uncheckedBytes = 0;
    if (this.#options.isPermanent === true) this.#writingBack ??= this.#writeBack();
    await requireSpace(this.#dir, this.#options.spareBytes ?? 0);
  }

  /** A stream that appends to the file, and frees the memory of the data. */
  writable(): Writable {
    return new Writable({
      highWaterMark: 1 << 20,
      write: (chunk: Buffer, _encoding, done) => {
        this.#appendOwn([chunk]).then(done, done);
      },
      // Writes collected data together, because each write has a high fixed cost.
      writev: (chunks, done) => {
        this.#appendOwn(chunks.map(({ chunk }) => chunk as Buffer)).then(done, done);
      },
    });
  }

  /** Completes the file. @throws SvcError `disk_full`, or the write-back error */
  async end(): Promise<void> {
    await this.#writingBack;
    if (this.#writeBackFailure !== undefined) throw diskError(this.#writeBackFailure.error);
    this.#isComplete = true;
    this.#grow();
  }

  /** Resolves when the file is complete. */
  async untilComplete(signal: AbortSignal): Promise<void> {
    while (!this.#isComplete) await unlessAborted(this.#growth.promise, signal);
  }

  /**
   * Yields the whole file in blocks of this size, also while it is written; the last may be shorter. Each
   * block has separate memory.
   */
  async *blocks(blockBytes: number, signal: AbortSignal): AsyncGenerator<SpoolBlock> {
    for (let position = 0; position < this.sizeBytes || !this.#isComplete;) {
      signal.throwIfAborted();
      const leftBytes = this.sizeBytes - position;
      // A block is the last only if nothing follows.
      if (leftBytes <= blockBytes && !this.#isComplete) {
        await unlessAborted(this.#growth.promise, signal);
        continue;
      }
      const bytes = Buffer.allocUnsafeSlow(Math.min(blockBytes, leftBytes));
      for (let filled = 0; filled < bytes.length;) {
        const { bytesRead } = await this.#handle.read(bytes, filled, bytes.length - filled, position);
        if (bytesRead === 0) throw new Error("the file was truncated");
        filled += bytesRead;
        position += bytesRead;
      }
      yield { bytes, isEnd: this.#isComplete && position === this.sizeBytes };
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
      this.#writeBackFailure ??= { error };
    } finally {
      this.#writingBack = undefined;
    }
  }

  async #appendOwn(pieces: Buffer[]): Promise<undefined> {
    await this.append(...pieces);
    for (const piece of pieces) freeMemory(piece);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
    await rm(this.path, { force: true });
  }
}

/** @throws SvcError `disk_full` if the file system cannot hold these bytes */
export async function requireSpace(dir: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  if (bavail * bsize >= bytes + reserveBytes) return;
  const message = "no space left for the backup; free some and try again";
  throw new SvcError("disk_full", message);
}
