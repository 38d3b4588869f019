/** Creates directories, and sets modes, owners and groups. */
import { chmodSync, chownSync, closeSync, fstatSync, mkdirSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { at, ownedFd, openPath, openSubdirectory, reopen } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { entryAt } from "./entries.mjs";
import { assertNamed, withParent, opened } from "./host-path.mjs";
import { namesOf, spell } from "./spelling.mjs";
import { Walk } from "./walk.mjs";

const specialBits = 0o7000;

/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath & { parents: boolean, mode: number }} args
 * @param {AbortSignal} signal
 */
export async function makeDirectory(syscalls, { parents, mode, ...target }, signal) {
  const names = namesOf(target.path);
  // Creates one directory at a time, the topmost first, so that links on the way follow the same rules as elsewhere.
  for (let depth = parents ? 1 : names.length; depth < names.length; depth++) {
    const path = `/${names.slice(0, depth).map(spell).join("/")}`;
    await withParent(syscalls, { ...target, path }, { follow: true }, ({ parent, name }) => {
      if (!isThere(parent, name)) makeOne(parent, name, 0o755);
    });
    // A path may have thousands of levels: let other requests run, and notice cancellation.
    await turn();
    signal.throwIfAborted();
  }
  return withParent(syscalls, target, { follow: parents }, (found) => {
    const { parent, name } = found;
    if (!parents) assertNamed(found);
    if (!parents || !isThere(parent, name)) makeOne(parent, name, mode);
    return entryAt(parent, name);
  });
}

/**
 * @param {number} parent
 * @param {string} name
 */
function isThere(parent, name) {
  try {
    closeSync(openSubdirectory(parent, name));
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/**
 * @param {number} parent
 * @param {string} name
 * @param {number} mode
 */
function makeOne(parent, name, mode) {
  // Without a umask, mkdir sets the final mode. The calls are synchronous, so no other work runs without a umask.
  const umask = process.umask(0);
  try {
    mkdirSync(at(parent, name), mode & 0o777);
  } finally {
    process.umask(umask);
  }
  if ((mode & specialBits) === 0) return;
  using made = ownedFd(openSubdirectory(parent, name));
  if (fstatSync(made.fd).uid === process.geteuid?.()) chmodSync(reopen(made.fd), mode);
}

/**
 * @typedef {object} Attributes
 * @property {number | null} mode
 * @property {number | null} uid
 * @property {number | null} gid
 */

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath & Attributes & { recursive: boolean }} args
 * @param {(entries: number) => void} report
 * @param {AbortSignal} signal
 */
export async function setAttributes(syscalls, { mode, uid, gid, recursive, ...target }, report, signal) {
  const requested = { mode, uid, gid };
  return withParent(syscalls, target, { follow: false }, async (found) => {
    const { parent, name, guard } = found;
    const isTree = await opened(found, (fd, stats) => {
      guard.admitWhole(stats);
      if (stats.isSymbolicLink() && mode !== null) {
        throw new RequestError("WRONG_TYPE", "is a symbolic link, which has no mode of its own");
      }
      if (!recursive || !stats.isDirectory()) set(fd, requested);
      return recursive && stats.isDirectory();
    });
    if (isTree) {
      assertNamed(found);
      const change = (/** @type {number} */ directory, /** @type {string} */ each) =>
        setAt(directory, each, requested);
      // A directory that loses access is changed after its content; one that gains access, before.
      const before = mode === null || (mode & 0o500) === 0o500;
      const walk = new Walk(target.path, {
        leaf: change,
        ...(before ? { enter: change } : { leave: change }),
      });
      await walk.run(parent, name, report, signal);
      walk.throwFirst();
    }
    return entryAt(parent, name);
  });
}

/**
 * @param {number} fd
 * @param {Attributes} requested
 */
function set(fd, { mode, uid, gid }) {
  if (uid !== null || gid !== null) chownSync(reopen(fd), uid ?? -1, gid ?? -1);
  if (mode !== null) chmodSync(reopen(fd), mode);
}

/**
 * @param {number} directory
 * @param {string} name
 * @param {Attributes} requested
 */
function setAt(directory, name, requested) {
  using entry = ownedFd(openPath(directory, name));
  set(entry.fd, fstatSync(entry.fd).isSymbolicLink() ? { ...requested, mode: null } : requested);
}
