/**
 * The log of an app: records in files that are named for the position at which they begin.
 *
 * A record is one line, `2026-11-21T10:00:00.000Z o text`: when the line was read, where it came from (`o` stdout,
 * `e` stderr, `s` the supervisor itself), a space, and the bytes as the app wrote them. A capital letter (`O`, `E`)
 * marks a piece of a line that was too long and goes on in the next record of the same letter.
 *
 * A *position* counts the bytes of all records since the app's first start. The file `000000000123456.log` begins at
 * position 123456, so nothing is ever renamed, and a position stays good for as long as its file is kept.
 */
import { readdir, stat } from "node:fs";
import { promisify } from "node:util";

const [readDirectory, statFile] = [promisify(readdir), promisify(stat)];

/** The longest piece of a line in one record, in bytes. */
export const maxLineBytes = 64 * 1024;
/** Bytes of `2026-11-21T10:00:00.000Z o `. */
export const prefixBytes = 27;
/** The longest record there is. */
export const maxRecordBytes = prefixBytes + maxLineBytes + 1;

const segmentName = /^(\d{15})\.log$/;

/** @param {number} position */
export function logFileName(position) {
  return `${String(position).padStart(15, "0")}.log`;
}

/**
 * Where the log file of that name begins; `undefined` for any other file.
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
      // Rotated away since the directory was read.
    }
  }
  return files;
}
