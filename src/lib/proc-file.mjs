/** Files of `/proc`, which tell no size: to read all of one as an ordinary file takes two more system calls, and 64 KiB of memory. */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";

/**
 * @param {string} path
 * @param {Buffer} buffer holds what is returned until it is used again; what does not fit is read as a whole all the same
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
