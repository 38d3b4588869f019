/**
 * Samples on disk, in files that each cover a span of time: `<level>-<number of the span>`. A file is a sequence of
 * frames; a frame is its length (32 bits, little endian) and zstd-compressed JSON, whose checksum detects damage.
 */
import { appendFile, mkdir, readFile, readdir, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";

export interface SampleFilesOptions {
  /** Absolute; created if missing. */
  dir: string;
  /** Prefix of the file names. */
  level: string;
  /** Milliseconds that a file covers. */
  spanMs: number;
  /** Maximum number of files, including the current one. */
  maxFiles: number;
  /** Maximum size of all files; the oldest are deleted first. */
  maxBytes: number;
}

export interface Sample {
  readonly atMs: number;
}

const lengthBytes = 4;
/** svc writes no larger frame, so a larger length is damaged. */
const maxFrameBytes = 16 * 1024 * 1024;

export class SampleFiles<T extends Sample> {
  readonly #options: SampleFilesOptions;
  /** Offset of the next frame, for files that this process has written to. */
  readonly #ends = new Map<number, number>();

  constructor(options: SampleFilesOptions) {
    this.#options = options;
  }

  /**
   * Appends samples as one frame, and deletes files that are too old or exceed the limit. Not synced: a crash of the
   * host may lose about the last minute of a chart.
   * @param samples at least one, oldest first
   * @throws if they cannot be written; earlier samples stay readable
   */
  async append(samples: readonly T[]): Promise<void> {
    const { dir } = this.#options;
    const span = this.#spanOf(samples[0]?.atMs ?? 0);
    const file = this.#fileOf(span);
    const packed = await promisify(zstdCompress)(JSON.stringify(samples), {
      params: { [constants.ZSTD_c_checksumFlag]: 1 },
    });
    const length = Buffer.alloc(lengthBytes);
    length.writeUInt32LE(packed.length);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const end = this.#ends.get(span) ?? (await this.#cut(file));
    try {
      await appendFile(file, Buffer.concat([length, packed]), { mode: 0o600 });
    } catch (error) {
      // Half a frame would hide the frames after it.
      await truncate(file, end).catch(() => undefined);
      throw error;
    }
    this.#ends.set(span, end + lengthBytes + packed.length);
    await this.#prune(span);
  }

  /**
   * Yields samples from the newest file to the oldest, each file's oldest first, and none from before `sinceMs`. A
   * damaged frame ends its file.
   */
  async *newestFirst(sinceMs: number): AsyncGenerator<T[], void> {
    for (const span of (await this.#spans()).toReversed()) {
      if (span < this.#spanOf(sinceMs)) return;
      yield await this.#readFile(span, sinceMs);
    }
  }

  /** The newest `count` samples or somewhat more, oldest first. */
  async newest(count: number, sinceMs: number): Promise<T[]> {
    const files: T[][] = [];
    let found = 0;
    if (count <= 0) return [];
    for await (const samples of this.newestFirst(sinceMs)) {
      files.push(samples);
      found += samples.length;
      if (found >= count) break;
    }
    return files.toReversed().flat();
  }

  async #readFile(span: number, sinceMs: number): Promise<T[]> {
    const samples: T[] = [];
    // The file may have been deleted in the meantime.
    const bytes = await readFile(this.#fileOf(span)).catch(() => Buffer.alloc(0));
    for (const frame of framesOf(bytes)) {
      // Each frame is decompressed on another thread and parsed in a separate turn of the event loop, so that a long
      // history blocks nobody.
      const text = await promisify(zstdDecompress)(frame).catch(() => undefined);
      if (text === undefined) break;
      for (const sample of JSON.parse(text.toString()) as T[])
        if (sample.atMs >= sinceMs) samples.push(sample);
    }
    return samples;
  }

  #spanOf(atMs: number): number {
    return Math.floor(atMs / this.#options.spanMs);
  }

  #fileOf(span: number): string {
    return join(this.#options.dir, `${this.#options.level}-${span}`);
  }

  /** Oldest first. */
  async #spans(): Promise<number[]> {
    const { dir, level } = this.#options;
    const names = await readdir(dir).catch(() => []);
    return names
      .filter((name) => name.startsWith(`${level}-`))
      .map((name) => Number(name.slice(level.length + 1)))
      .filter(Number.isSafeInteger)
      .toSorted((a, b) => a - b);
  }

  /** Truncates a file after its last complete frame, if a process died while writing. Resolves with the offset of the end. */
  async #cut(file: string): Promise<number> {
    const bytes = await readFile(file).catch((error: unknown) => {
      // A file that cannot be read now must not count as empty: it would be truncated if the next write failed.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    });
    if (bytes === undefined) return 0;
    let end = 0;
    for (const frame of framesOf(bytes)) end += lengthBytes + frame.length;
    if (end < bytes.length) await truncate(file, end);
    return end;
  }

  async #prune(newest: number): Promise<void> {
    const { maxFiles, maxBytes } = this.#options;
    let bytes = 0;
    for (const [age, span] of (await this.#spans()).toReversed().entries()) {
      const file = this.#fileOf(span);
      bytes += (await stat(file).catch(() => ({ size: 0 }))).size;
      // The clock may have been set back: a file from the future is treated like a very old one.
      const isOld = span <= newest - maxFiles || age >= 2 * maxFiles;
      if (span === newest || (!isOld && bytes <= maxBytes)) continue;
      this.#ends.delete(span);
      await rm(file, { force: true });
    }
  }
}

function* framesOf(bytes: Buffer): Generator<Buffer, void> {
  for (let at = 0; at + lengthBytes <= bytes.length;) {
    const length = bytes.readUInt32LE(at);
    const end = at + lengthBytes + length;
    if (length === 0 || length > maxFrameBytes || end > bytes.length) return;
    yield bytes.subarray(at + lengthBytes, end);
    at = end;
  }
}
