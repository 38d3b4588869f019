/**
 * The log of an app: records in files that are named for the position of their first byte.
 *
 * A record is one line, `2026-11-21T10:00:00.000Z o text`: when the line was read, its source (`o` stdout, `e`
 * stderr, `s` the supervisor), a space, and the bytes that the app wrote. A capital letter (`O`, `E`) marks a piece
 * of an overlong line, which continues in the next record of the same letter, or the start of a line without a line
 * feed so far.
 *
 * A *position* counts the bytes of all records since the app's first start. The file `000000000123456.log` begins at
 * position 123456, so nothing is ever renamed, and a position is valid as long as its file exists.
 */
import { readdir, stat } from "node:fs";
import { promisify } from "node:util";

const [readDirectory, statFile] = [promisify(readdir), promisify(stat)];

/** The longest piece of a line in one record, in bytes. */
export const maxLineBytes = 64 * 1024;
/** Bytes of `2026-11-21T10:00:00.000Z o `. */
export const prefixBytes = 27;
/** Size of the longest possible record. */
export const maxRecordBytes = prefixBytes + maxLineBytes + 1;

const segmentName = /^(\d{15})\.log$/;

/** @param {number} position */
export function logFileName(position) {
  return `${String(position).padStart(15, "0")}.log`;
}

/**
 * Position of a log file's first byte, from its name; `undefined` for other files.
 * @param {string} name
 */
export function logFileStart(name) {
  const digits = segmentName.exec(name)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * @typedef {object} LogFile
 * @property {string} path
 * @property {number} start position of its first byte
 * @property {number} size
 */

/**
 * @param {string} directory
 * @returns {Promise<LogFile[]>} in order, oldest first
 */
export async function listLogFiles(directory) {
  const files = [];
  for (const name of (await readDirectory(directory)).sort()) {
    const start = logFileStart(name);
    if (start === undefined) continue;
    const path = `${directory}/${name}`;
    try {
      files.push({ path, start, size: (await statFile(path)).size });
    } catch {
      // Deleted by rotation since the directory was read.
    }
  }
  return files;
}
