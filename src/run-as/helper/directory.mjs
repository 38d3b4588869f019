/**
 * Directories by descriptor. Node has no `openat(2)`, but `/proc/self/fd/<fd>/<name>` is equivalent: the kernel goes
 * straight to the open directory, so no part of a path can be swapped for a symlink, and no path is ever too long.
 *
 * Names are strings of one character per byte (latin1), because a name does not have to be UTF-8.
 */
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  opendirSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { RequestError, hasCode } from "./request-error.mjs";

// Specific to Linux, not among Node's constants: refers to an entry without access to its content.
export const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const privateMode = 0o700;

/** @param {string} name */
export function toLatin1(name) {
  return Buffer.from(name).toString("latin1");
}

/**
 * Closes a descriptor at the end of its scope: `using file = ownedFd(openPath(parent, name))`.
 * @param {number} fd
 */
export function ownedFd(fd) {
  return { fd, [Symbol.dispose]: () => closeSync(fd) };
}

/**
 * The path of a name in an open directory.
 * @param {number} fd
 * @param {string} name
 */
export function at(fd, name) {
  return Buffer.from(`/proc/self/fd/${fd}/${name}`, "latin1");
}

/**
 * The path that opens a descriptor again.
 * @param {number} fd
 */
export function reopen(fd) {
  return `/proc/self/fd/${fd}`;
}

/**
 * Opens a directory that is not a symlink.
 * @param {number} parent
 * @param {string} name
 * @throws RequestError `SYMLINK`; ENOENT, ENOTDIR and EACCES from the kernel
 */
export function openSubdirectory(parent, name) {
  try {
    return openSync(at(parent, name), O_PATH | O_DIRECTORY | O_NOFOLLOW);
  } catch (error) {
    if (hasCode(error, "ENOTDIR", "ELOOP") && lstatSync(at(parent, name)).isSymbolicLink()) {
      throw new RequestError("SYMLINK", "symbolic links are not followed");
    }
    throw error;
  }
}

/**
 * Returns a descriptor of any entry, including symlinks, without opening it: devices are not activated and FIFOs do not
 * block.
 * @param {number} parent
 * @param {string} name
 */
export function openPath(parent, name) {
  return openSync(at(parent, name), O_PATH | O_NOFOLLOW);
}

/**
 * Opens the regular file that an O_PATH descriptor refers to.
 * @param {number} fd
 */
export function openForReading(fd) {
  return open(reopen(fd), O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

/**
 * Walks down from a directory, name by name.
 * @param {number} start is closed
 * @param {readonly string[]} names
 * @param {(parent: number, name: string) => number} [step]
 * @returns {number} must be closed by the caller
 */
export function descend(start, names, step = openSubdirectory) {
  let fd = start;
  for (const name of names) {
    using above = ownedFd(fd);
    fd = step(above.fd, name);
  }
  return fd;
}

/**
 * Makes the entry of a directory durable.
 * @param {number} fd
 */
export function syncDirectory(fd) {
  using readable = ownedFd(openSync(reopen(fd), O_RDONLY | O_DIRECTORY));
  fsyncSync(readable.fd);
}

/**
 * The names in a directory, read in portions.
 * @param {number} fd
 * @returns {Generator<string, void, void>}
 */
export function* namesIn(fd) {
  const dir = opendirSync(reopen(fd), { encoding: "latin1", bufferSize: 256 });
  try {
    for (let entry = dir.readSync(); entry; entry = dir.readSync()) yield entry.name;
  } finally {
    dir.closeSync();
  }
}

/**
 * Whether a directory is the same as another one or below it.
 * @param {number} fd
 * @param {import("node:fs").Stats} above
 */
export function isWithin(fd, above) {
  let current = openPath(fd, ".");
  try {
    for (;;) {
      const { dev, ino } = fstatSync(current);
      if (dev === above.dev && ino === above.ino) return true;
      const parent = openPath(current, "..");
      closeSync(current);
      current = parent;
      const next = fstatSync(current);
      if (next.dev === dev && next.ino === ino) return false;
    }
  } finally {
    closeSync(current);
  }
}

/** @typedef {{ root: string, path: string }} RootedPath A root and a path below it, as in a request. */

/**
 * Returns the names of a path below a root.
 * @param {RootedPath} target
 * @returns {string[]}
 * @throws RequestError `INVALID` for NUL, `..`, lone surrogates, a root that is not absolute, a path outside of it
 */
export function namesBelow({ root, path }) {
  for (const text of [root, path]) {
    if (typeof text !== "string" || text.includes("\0") || !text.isWellFormed()) {
      throw new RequestError("INVALID", "is not a valid path");
    }
    if (text.split("/").includes("..")) throw new RequestError("INVALID", 'must not contain ".."');
  }
  if (!root.startsWith("/")) throw new RequestError("INVALID", "the root must be absolute");
  const names = split(path);
  if (!path.startsWith("/")) return names;
  const above = split(root);
  if (above.some((name, index) => names[index] !== name)) {
    throw new RequestError("INVALID", "is outside of the root");
  }
  return names.slice(above.length);
}

/** @param {string} path */
function split(path) {
  return path
    .split("/")
    .filter((name) => name !== "" && name !== ".")
    .map(toLatin1);
}

/**
 * Opens a directory for the time of the work.
 * @template T
 * @param {RootedPath} target
 * @param {(fd: number) => T} work
 * @param {{ make?: boolean }} [options] `make`: create missing directories, accessible only to this user
 * @returns {Promise<Awaited<T>>}
 */
export async function inDirectory(target, work, { make = false } = {}) {
  const names = namesBelow(target);
  const root = openSync(target.root, O_PATH | O_DIRECTORY);
  using directory = ownedFd(descend(root, names, make ? makeSubdirectory : openSubdirectory));
  return await work(directory.fd);
}

/**
 * Opens the parent directory of a path for the time of the work.
 * @template T
 * @param {RootedPath} target
 * @param {(parent: number, name: string) => T} work
 * @returns {Promise<Awaited<T>>}
 * @throws RequestError `INVALID` for the root itself, whose parent is not accessible
 */
export async function inParent(target, work) {
  const names = namesBelow(target);
  const name = names.at(-1);
  if (name === undefined) throw new RequestError("INVALID", "must not be the root itself");
  const parentPath = Buffer.from(names.slice(0, -1).join("/"), "latin1").toString();
  return inDirectory({ root: target.root, path: parentPath }, (parent) => work(parent, name));
}

/**
 * @param {number} parent
 * @param {string} name
 */
function makeSubdirectory(parent, name) {
  try {
    mkdirSync(at(parent, name), privateMode);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    return openSubdirectory(parent, name);
  }
  const fd = openSubdirectory(parent, name);
  // The parent directory may have influenced the mode (umask, default ACL); set exactly this one.
  if ((fstatSync(fd).mode & 0o7777) !== privateMode) chmodSync(reopen(fd), privateMode);
  syncDirectory(parent);
  return fd;
}
