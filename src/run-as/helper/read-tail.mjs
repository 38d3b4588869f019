/** Reads the last lines of log files backwards in blocks, so that the size of the files does not matter. */
import { openRegular } from "./files.mjs";
import { hasCode } from "./request-error.mjs";

const blockBytes = 64 << 10;
const newline = 10;

/**
 * @param {{ root: string, files: string[], maxLines: number, maxBytes: number }} args `files`: oldest first
 * @param {AbortSignal} signal
 * @returns {Promise<{ data: Buffer, truncated: boolean }>}
 */
export async function readTail({ root, files, maxLines, maxBytes }, signal) {
  const tail = new Tail(maxLines, maxBytes);
  for (const path of files.toReversed()) {
    if (tail.isFull()) break;
    try {
      await using file = await openRegular({ root, path });
      let end = (await file.stat()).size;
      while (end > 0 && !tail.isFull()) {
        signal.throwIfAborted();
        const start = Math.max(0, end - blockBytes);
        const block = Buffer.allocUnsafe(end - start);
        const { bytesRead } = await file.read(block, 0, block.length, start);
        // The file was truncated while it was read; the rest of it comes next.
        if (bytesRead === block.length) tail.prepend(block);
        end = start;
      }
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
    }
  }
  return tail.result();
}

/** Collects a text from its end to its start. */
class Tail {
  #maxLines;
  #maxBytes;
  /** @type {Buffer[]} */
  #blocks = [];
  #bytes = 0;
  #lines = 0;
  #full = false;
  #truncated = false;

  /**
   * @param {number} maxLines
   * @param {number} maxBytes
   */
  constructor(maxLines, maxBytes) {
    this.#maxLines = maxLines;
    this.#maxBytes = maxBytes;
  }

  isFull() {
    return this.#full;
  }

  /** @param {Buffer} block */
  prepend(block) {
    let from = block.length;
    // A line is complete if a newline precedes it. The very last byte ends the last line.
    for (;;) {
      const searchFrom = from - 1 - (this.#bytes === 0 && from === block.length ? 1 : 0);
      const found = searchFrom < 0 ? -1 : block.lastIndexOf(newline, searchFrom);
      if (found < 0) {
        this.#keep(block);
        return;
      }
      from = found;
      this.#lines += 1;
      if (this.#lines === this.#maxLines) {
        this.#keep(block.subarray(found + 1));
        this.#full = true;
        return;
      }
    }
  }

  /** @param {Buffer} block */
  #keep(block) {
    this.#blocks.unshift(block);
    this.#bytes += block.length;
    if (this.#bytes > this.#maxBytes) {
      this.#full = true;
      this.#truncated = true;
    }
  }

  result() {
    let data = Buffer.concat(this.#blocks);
    if (this.#truncated) {
      const cut = data.length - this.#maxBytes;
      const lineStart = data.indexOf(newline, cut - 1) + 1;
      // A single line longer than the limit is cut.
      data = data.subarray(lineStart === 0 || lineStart === data.length ? cut : lineStart);
    }
    return { data, truncated: this.#truncated };
  }
}
