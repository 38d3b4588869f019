/**
 * Reads an app's log for a follower. The files on disk are the only queue: a slow reader uses one chunk of memory,
 * and one that is slower than the rotation receives the size of the gap.
 */
import { close, open, read } from "node:fs";
import { promisify } from "node:util";
import { maxRecordBytes, listLogFiles } from "./log-files.mjs";

/** @import { LogFile } from "./log-files.mjs" */

const [openFile, closeFile, readFile] = [promisify(open), promisify(close), promisify(read)];

const newlineByte = 10;
const chunkBytes = 2 * maxRecordBytes;

/**
 * Position at which the last `count` records begin, found by reading backwards.
 * @param {string} directory
 * @param {number} count
 * @param {number} end position to count back from
 */
export async function tailPosition(directory, count, end) {
  if (count <= 0) return end;
  const files = (await listLogFiles(directory)).filter((file) => file.start < end);
  const chunk = Buffer.allocUnsafe(64 * 1024);
  // No record begins after the final newline.
  let newlines = -1;
  for (const file of files.reverse()) {
    const handle = await openFile(file.path, "r");
    try {
      let offset = Math.min(file.size, end - file.start);
      while (offset > 0) {
        const length = Math.min(chunk.length, offset);
        offset -= length;
        const { bytesRead } = await readFile(handle, chunk, 0, length, offset);
        for (let at = bytesRead; at > 0;) {
          at = chunk.lastIndexOf(newlineByte, at - 1);
          if (at === -1) break;
          if (++newlines === count) return file.start + offset + at + 1;
        }
      }
    } finally {
      await closeFile(handle);
    }
  }
  return files.at(-1)?.start ?? end;
}

/** Reads records forward from a position, across files. */
export class LogReader {
  #directory;
  #position;
  /** @type {{ handle: number, file: LogFile } | undefined} */
  #open;
  #chunk = Buffer.allocUnsafe(chunkBytes);

  /**
   * @param {string} directory
   * @param {number} position start of a record
   */
  constructor(directory, position) {
    this.#directory = directory;
    this.#position = position;
  }

  /**
   * The next complete records before `end`.
   * @param {number} end position up to which the log is written
   * @returns {Promise<{ from: number, to: number, text: string | null } | undefined>} `text` is null for a gap;
   *   `undefined` when there is nothing new
   */
  async next(end) {
    while (this.#position < end) {
      this.#open ??= await this.#openAt(this.#position);
      if (this.#open === undefined) return undefined;
      const { handle, file } = this.#open;
      if (file.start > this.#position) return this.#gapTo(file.start);
      const length = Math.min(chunkBytes, end - this.#position);
      const { bytesRead } = await readFile(handle, this.#chunk, 0, length, this.#position - file.start);
      const whole = bytesRead === 0 ? 0 : this.#chunk.lastIndexOf(newlineByte, bytesRead - 1) + 1;
      if (whole > 0) {
        const from = this.#position;
        this.#position += whole;
        return { from, to: this.#position, text: this.#chunk.toString("utf8", 0, whole) };
      }
      const next = (await listLogFiles(this.#directory)).find(({ start }) => start > file.start);
      if (next === undefined) return undefined;
      await this.close();
    }
    return undefined;
  }

  async close() {
    const open = this.#open;
    this.#open = undefined;
    if (open) await closeFile(open.handle);
  }

  /** @param {number} position */
  async #openAt(position) {
    const files = await listLogFiles(this.#directory);
    const file = files.findLast(({ start }) => start <= position);
    const next = files.find(({ start }) => start > position);
    const covering = file && (position < file.start + file.size || !next) ? file : next;
    return covering && { handle: await openFile(covering.path, "r"), file: covering };
  }

  /** @param {number} position */
  #gapTo(position) {
    const from = this.#position;
    this.#position = position;
    return { from, to: position, text: null };
  }
}
