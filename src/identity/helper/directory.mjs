/**
 * Directories by descriptor. Node has no `openat(2)`; `/proc/self/fd/<fd>/<name>` is the same: the kernel goes straight to
 * the open directory, so no part of a path can be swapped for a symlink on the way, and no path is ever too long.
 *
 * Names are strings of one character per byte (latin1), since a name need not be UTF-8.
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

// Linux's own, and not among node's constants: names a place without any right to its content.
export const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const privateMode = 0o700;

/** @param {string} name */
export function toLatin1(name) {
  return Buffer.from(name).toString("latin1");
}

/**
 * A descriptor that is closed at the end of its scope: `using place = held(openPlace(parent, name))`.
 * @param {number} fd
 */
export function held(fd) {
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
 * The path that reopens a descriptor.
 * @param {number} fd
 */
export function reopen(fd) {
  return `/proc/self/fd/${fd}`;
}

/**
 * A descriptor of a directory that is no symlink.
 * @param {number} parent
 * @param {string} name
 * @throws RequestError `SYMLINK`; ENOENT, ENOTDIR and EACCES as the kernel has them.
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
 * A descriptor of whatever has that name, a symlink itself included, without opening it: no device wakes up and no FIFO waits.
 * @param {number} parent
 * @param {string} name
 */
export function openPlace(parent, name) {
  return openSync(at(parent, name), O_PATH | O_NOFOLLOW);
}

/**
 * Opens the regular file that a descriptor stands for.
 * @param {number} place
 */
export function openForReading(place) {
  return open(reopen(place), O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

/**
 * Goes down from a directory, name by name.
 * @param {number} start Is closed.
 * @param {readonly string[]} names
 * @param {(parent: number, name: string) => number} [step]
 * @returns {number} To be closed.
 */
export function descend(start, names, step = openSubdirectory) {
  let fd = start;
  for (const name of names) {
    using above = held(fd);
    fd = step(above.fd, name);
  }
  return fd;
}

/**
 * Makes the entry of a directory durable.
 * @param {number} fd
 */
export function syncDirectory(fd) {
  using readable = held(openSync(reopen(fd), O_RDONLY | O_DIRECTORY));
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

/** @typedef {{ root: string, path: string }} Place A root and a path beneath it, as a request has them. */

/**
 * The names of a path beneath a root.
 * @param {Place} place
 * @returns {string[]}
 * @throws RequestError `INVALID` for NUL, `..`, lone surrogates, a root that is not absolute, a path outside of it.
 */
export function namesBelow({ root, path }) {
  for (const text of [root, path]) {
    if (typeof text !== "string" || text.includes("\0") || !text.isWellFormed()) {
      throw new RequestError("INVALID", "no valid path");
    }
    if (text.split("/").includes("..")) throw new RequestError("INVALID", 'must not contain ".."');
  }
  if (!root.startsWith("/")) throw new RequestError("INVALID", "the root must be absolute");
  const names = split(path);
  if (!path.startsWith("/")) return names;
  const above = split(root);
  if (above.some((name, index) => names[index] !== name)) {
    throw new RequestError("INVALID", "lies outside of the root");
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
 * Works in the directory at a place, and closes it afterwards.
 * @template T
 * @param {Place} place
 * @param {(fd: number) => T} work
 * @param {{ make?: boolean }} [options] `make`: directories are made where they are missing, for this user alone.
 * @returns {Promise<Awaited<T>>}
 */
export async function inDirectory(place, work, { make = false } = {}) {
  const names = namesBelow(place);
  const root = openSync(place.root, O_PATH | O_DIRECTORY);
  using directory = held(descend(root, names, make ? makeSubdirectory : openSubdirectory));
  return await work(directory.fd);
}

/**
 * Works with the parent directory of a place and its name there.
 * @template T
 * @param {Place} place
 * @param {(parent: number, name: string) => T} work
 * @returns {Promise<Awaited<T>>}
 * @throws RequestError `INVALID` for the root itself, whose parent is out of bounds.
 */
export async function inParent(place, work) {
  const names = namesBelow(place);
  const name = names.at(-1);
  if (name === undefined) throw new RequestError("INVALID", "the root itself cannot be meant");
  const parentPath = Buffer.from(names.slice(0, -1).join("/"), "latin1").toString();
  return inDirectory({ root: place.root, path: parentPath }, (parent) => work(parent, name));
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
  // The directory that it is in may have had its say, too: the mode is exact.
  if ((fstatSync(fd).mode & 0o7777) !== privateMode) chmodSync(reopen(fd), privateMode);
  syncDirectory(parent);
  return fd;
}
