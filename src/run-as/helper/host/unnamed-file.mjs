/** Files that are written before they have a name: if the writer stops, the kernel removes them. */
import { constants, unlinkSync } from "node:fs";
import { open } from "node:fs/promises";
import { at, reopen } from "../directory.mjs";
import { hasCode } from "../request-error.mjs";

const { O_RDWR, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
// Specific to Linux, not among Node's constants: a file without a name.
const O_TMPFILE = 0o20200000;

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */

/**
 * Opens an unnamed file, or a file with a temporary name if the file system does not support it.
 * @param {Syscalls} syscalls
 * @param {number} parent
 * @param {string} temporary
 */
export async function openUnnamed(syscalls, parent, temporary) {
  if (syscalls.isNative) {
    try {
      const handle = await open(reopen(parent), O_TMPFILE | O_RDWR, 0o600);
      return { handle, isNamed: false, [Symbol.asyncDispose]: () => handle.close() };
    } catch (error) {
      // The file system does not support unnamed files.
      if (!hasCode(error, "EOPNOTSUPP", "EISDIR", "EINVAL", "ENOENT")) throw error;
    }
  }
  const handle = await open(at(parent, temporary), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  return { handle, isNamed: true, [Symbol.asyncDispose]: () => handle.close() };
}

/**
 * @param {number} parent
 * @param {string} name
 */
export function unlinkIfThere(parent, name) {
  try {
    unlinkSync(at(parent, name));
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
