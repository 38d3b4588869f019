/**
 * Samples on disk, in files that each hold a span of time: `<level>-<number of the span>`, one frame after the other, a
 * frame being its length (32 bits, little endian) and JSON packed with zstd, whose checksum tells a damaged one.
 */
import { appendFile, mkdir, readFile, readdir, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";

export interface SampleFilesOptions {
  /** Absolute; made when it is missing. */
  dir: string;
  /** What the names of its files begin with. */
  level: string;
  /** How much time a file holds. */
  spanMs: number;
  /** How many files are kept, the one that is written included. */
  maxFiles: number;
  /** Together; the oldest go first. */
  maxBytes: number;
}

export interface Sample {
  readonly atMs: number;
}

const lengthBytes = 4;
/** No frame of ours is larger: what says so is damaged. */
const maxFrameBytes = 16 * 1024 * 1024;

export class SampleFiles<T extends Sample> {
  readonly #options: SampleFilesOptions;
  /** Where the next frame of a file begins; for files that this process has written to. */
  readonly #ends = new Map<number, number>();

  constructor(options: SampleFilesOptions) {
    this.#options = options;
  }

  /**
   * Appends them as one frame, and lets go of what is too old or too much. Not synced: what a crash of the host may take is
   * the last minute or so of a chart.
   * @param samples at least one, oldest first
   * @throws when they cannot be written; what was written before stays readable
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
      // Half a frame would hide what comes after it.
      await truncate(file, end).catch(() => undefined);
      throw error;
    }
    this.#ends.set(span, end + lengthBytes + packed.length);
    await this.#prune(span);
  }

  /**
   * Those that are kept, from the newest file to the oldest; in each the oldest first, and none from before `sinceMs`. A damaged
   * frame ends its file.
   */
  async *newestFirst(sinceMs: number): AsyncGenerator<T[], void> {
    for (const span of (await this.#spans()).toReversed()) {
      if (span < this.#spanOf(sinceMs)) return;
      yield await this.#readFile(span, sinceMs);
    }
  }

  /** The newest of them, `count` or somewhat more, oldest first. */
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
    // It may have been let go of in the meantime.
    const bytes = await readFile(this.#fileOf(span)).catch(() => Buffer.alloc(0));
    for (const frame of framesOf(bytes)) {
      // Each on another thread and parsed in a turn of its own, so that a long history holds nobody up.
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

  /** Takes from a file what a process that died did not finish. Resolves with where its last whole frame ends. */
  async #cut(file: string): Promise<number> {
    const bytes = await readFile(file).catch((error: unknown) => {
      // What cannot be read now must not count as empty: it would be cut off should the next write fail.
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
      // The clock may have been set back: what claims to be from later is as good as what is from long ago.
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
