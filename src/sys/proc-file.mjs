/**
 * Reads files of `/proc`, which report no size: reading one like an ordinary file costs two more system calls, and 64
 * KiB of memory.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";

/**
 * @param {string} path
 * @param {Buffer} buffer holds the result until the next use; a larger file is read into new memory
 * @returns {Buffer}
 */
export function readProcFile(path, buffer) {
  const fd = openSync(path, "r");
  try {
    const length = readSync(fd, buffer, 0, buffer.length, null);
    if (length < buffer.length) return buffer.subarray(0, length);
  } finally {
    closeSync(fd);
  }
  return readFileSync(path);
}
