/** Finds and reads the last lines of files, backwards in blocks, so that the size of the files does not matter. */
import { openRegular } from "./files.mjs";
import { hasCode } from "./request-error.mjs";

const blockBytes = 256 << 10;
const newline = 10;

/** @typedef {import("node:fs/promises").FileHandle} FileHandle */

/**
 * Finds the start of the last lines before a position.
 * @param {FileHandle} file
 * @param {{ end: number, lines: number, least: number }} bounds `end`: the position, without the newline that ends the
 *   last line; `least`: where the search ends
 * @param {AbortSignal} signal
 * @returns {Promise<{ start: number, missing: number }>} `missing`: lines that start before `least`
 */
export async function findLines(file, { end, lines, least }, signal) {
  const buffer = Buffer.allocUnsafe(Math.max(0, Math.min(blockBytes, end - least)));
  let missing = lines;
  for (let blockEnd = end; blockEnd > least;) {
    signal.throwIfAborted();
    const start = Math.max(least, blockEnd - blockBytes);
    const { bytesRead } = await file.read(buffer, 0, blockEnd - start, start);
    for (
      let at = buffer.subarray(0, bytesRead).lastIndexOf(newline);
      at >= 0;
      at = at === 0 ? -1 : buffer.lastIndexOf(newline, at - 1)
    ) {
      if (--missing === 0) return { start: start + at + 1, missing };
    }
    blockEnd = start;
  }
  return { start: least, missing };
}

/**
 * Reads the last lines of log files as one text.
 * @param {{ root: string, files: string[], maxLines: number, maxBytes: number }} args `files`: oldest first
 * @param {AbortSignal} signal
 * @returns {Promise<{ data: Buffer, truncated: boolean }>}
 */
export async function readTail({ root, files, maxLines, maxBytes }, signal) {
  /** @type {Buffer[]} */
  const parts = [];
  let bytes = 0;
  let lines = maxLines;
  for (const path of files.toReversed()) {
    if (lines === 0 || bytes > maxBytes) break;
    try {
      await using file = await openRegular({ root, path });
      const { size } = await file.stat();
      // The very last byte ends the last line. One byte above the limit shows that there is more.
      const bounds = {
        end: bytes === 0 ? size - 1 : size,
        least: Math.max(0, size - (maxBytes - bytes) - 1),
      };
      const { start, missing } = await findLines(file, { ...bounds, lines }, signal);
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(size - start), 0, size - start, start);
      parts.unshift(buffer.subarray(0, bytesRead));
      bytes += bytesRead;
      lines = missing;
    } catch (error) {
      if (!hasCode(error, "ENOENT")) throw error;
    }
  }
  const data = Buffer.concat(parts);
  const cut = data.length - maxBytes;
  if (cut <= 0) return { data, truncated: false };
  const lineStart = data.indexOf(newline, cut - 1) + 1;
  // A single line longer than the limit is cut.
  return {
    data: data.subarray(lineStart === 0 || lineStart === data.length ? cut : lineStart),
    truncated: true,
  };
}
