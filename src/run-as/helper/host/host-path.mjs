/**
 * Walks to a path of the host by descriptors, one name after the other; the kernel follows no link. Symlinks are
 * followed here, by the text of the opened link, and only if root or this user owns it. So another user who can write
 * to a directory on the way cannot redirect the work. Links in /proc can lead to places other than their text, and are
 * never followed.
 */
import { closeSync, constants, fstatSync, openSync, statfsSync } from "node:fs";
import { O_PATH, at, ownedFd, openPath, reopen } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { Guard } from "./guard.mjs";
import { namesOf, spell, splitPath } from "./spelling.mjs";

const { O_DIRECTORY } = constants;
const maxLinks = 40;
const procMagic = 0x9fa0;

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {{ path: string, guard?: import("./guard.mjs").Guarded | undefined }} GuardedPath An escaped path. */
/** @typedef {{ parent: number, name: string, guard: Guard }} Found The descriptor of a directory and a name in it; "." for / itself. */

/**
 * Runs work on a path, with its parent directory open.
 * @template T
 * @param {Syscalls} syscalls
 * @param {GuardedPath} target
 * @param {{ follow: boolean }} options whether to follow a link at the end
 * @param {(found: Found) => T | Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withParent(syscalls, { path, guard: guarded }, { follow }, work) {
  const guard = new Guard(guarded);
  const components = namesOf(path);
  const names = [...components];
  let links = 0;
  let fd = openRoot();
  try {
    for (;;) {
      const name = names.shift() ?? ".";
      guard.admitName(fd, name);
      if (names.length === 0 && !follow) return await work({ parent: fd, name, guard });
      const found = openIfThere(
        fd,
        name,
        links === 0 ? components.slice(0, -names.length) : [],
        names.length === 0,
      );
      if (found === undefined) return await work({ parent: fd, name, guard });
      /** @type {number | undefined} */
      let next;
      try {
        const stats = fstatSync(found);
        if (stats.isSymbolicLink()) {
          if (++links > maxLinks) throw new RequestError("SYMLINK", "has too many symbolic links");
          const target = readTrusted(syscalls, found, stats);
          names.unshift(...splitPath(target));
          if (!target.startsWith("/")) continue;
          next = openRoot();
        } else if (names.length === 0) {
          return await work({ parent: fd, name, guard });
        } else if (stats.isDirectory()) {
          next = found;
        } else {
          throw Object.assign(new Error("ENOTDIR"), { code: "ENOTDIR" });
        }
      } finally {
        if (next !== found) closeSync(found);
      }
      closeSync(fd);
      fd = next;
    }
  } finally {
    closeSync(fd);
  }
}

function openRoot() {
  return openSync("/", O_PATH | O_DIRECTORY);
}

/**
 * @param {number} parent
 * @param {string} name
 * @param {string[]} reached the names up to it; empty if a link was followed
 * @param {boolean} isLast whether a missing entry is not an error here
 */
function openIfThere(parent, name, reached, isLast) {
  try {
    // The text of a link may contain `..`, which requires a directory.
    return name === ".." ? openSync(at(parent, name), O_PATH | O_DIRECTORY) : openPath(parent, name);
  } catch (error) {
    if (!(error instanceof Error && hasCode(error, "ENOENT"))) throw error;
    if (isLast) return undefined;
    // The error names the first missing directory of the path.
    throw reached.length === 0
      ? error
      : Object.assign(error, { subject: `/${reached.map(spell).join("/")}` });
  }
}

/**
 * @param {Syscalls} syscalls
 * @param {number} link
 * @param {import("node:fs").Stats} stats
 */
function readTrusted(syscalls, link, { uid }) {
  if (uid !== 0 && uid !== process.geteuid?.()) {
    throw new RequestError("FOREIGN_LINK", "contains a symbolic link of another user, which is not followed");
  }
  if (statfsSync(reopen(link)).type === procMagic) {
    throw new RequestError("SYMLINK", "contains a link of /proc");
  }
  return syscalls.readLink(link);
}

/**
 * Opens an entry with O_PATH, without activating it.
 * @template T
 * @param {Found} found
 * @param {(fd: number, stats: import("node:fs").BigIntStats) => T | Promise<T>} work
 * @returns {Promise<T>}
 */
export async function opened({ parent, name, guard }, work) {
  using entry = ownedFd(openPath(parent, name));
  const stats = fstatSync(entry.fd, { bigint: true });
  guard.admit(stats);
  return await work(entry.fd, stats);
}

/**
 * Checks a name that is about to be created, moved or removed.
 * @param {Found} found
 * @throws RequestError `INVALID` for / itself
 */
export function assertNamed({ name }) {
  if (name === "." || name === "..") throw new RequestError("INVALID", "cannot be the root directory");
}
