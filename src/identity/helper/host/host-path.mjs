/**
 * The way to a path of the host, by descriptors: one name after the other, none of which the kernel follows by itself. A
 * symlink is followed here, by what that very link says, and only when root or this user made it: whoever else may write
 * to a directory on the way cannot lead the work to another place. The links of /proc, which lead to places that their
 * text does not name, are never followed.
 */
import { closeSync, constants, fstatSync, openSync, statfsSync } from "node:fs";
import { O_PATH, at, held, openPlace, reopen } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { Guard } from "./guard.mjs";
import { namesOf, spell, splitPath } from "./spelling.mjs";

const { O_DIRECTORY } = constants;
const maxLinks = 40;
const procMagic = 0x9fa0;

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {{ path: string, guard?: import("./guard.mjs").Guarded | undefined }} HostPlace A spelled path. */
/** @typedef {{ parent: number, name: string, guard: Guard }} Found The descriptor of a directory and a name in it; "." for / itself. */

/**
 * Works at a path, with its directory open.
 * @template T
 * @param {Syscalls} syscalls
 * @param {HostPlace} place
 * @param {{ follow: boolean }} options Whether a link at the end is followed.
 * @param {(found: Found) => T | Promise<T>} work
 * @returns {Promise<T>}
 */
export async function inPlace(syscalls, { path, guard: guarded }, { follow }, work) {
  const guard = new Guard(guarded);
  const wanted = namesOf(path);
  const names = [...wanted];
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
        links === 0 ? wanted.slice(0, -names.length) : [],
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
 * @param {string[]} reached The names up to it; none where the path has led elsewhere.
 * @param {boolean} isLast Whether what is not there is for others to find out.
 */
function openIfThere(parent, name, reached, isLast) {
  try {
    // A link's text may go up; what is no directory cannot be up.
    return name === ".." ? openSync(at(parent, name), O_PATH | O_DIRECTORY) : openPlace(parent, name);
  } catch (error) {
    if (!(error instanceof Error && hasCode(error, "ENOENT"))) throw error;
    if (isLast) return undefined;
    // Who names a file wants to know which of its directories is missing.
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
    throw new RequestError(
      "FOREIGN_LINK",
      "leads over a symbolic link of another user, which is not followed",
    );
  }
  if (statfsSync(reopen(link)).type === procMagic) {
    throw new RequestError("SYMLINK", "leads over a link of /proc");
  }
  return syscalls.readLink(link);
}

/**
 * Opens whatever is at a place, without waking it up.
 * @template T
 * @param {Found} found
 * @param {(fd: number, stats: import("node:fs").BigIntStats) => T | Promise<T>} work
 * @returns {Promise<T>}
 */
export async function opened({ parent, name, guard }, work) {
  using place = held(openPlace(parent, name));
  const stats = fstatSync(place.fd, { bigint: true });
  guard.admit(stats);
  return await work(place.fd, stats);
}

/**
 * The name at a place that is about to be made, moved or removed.
 * @param {Found} found
 * @throws RequestError `INVALID` for / itself
 */
export function assertNamed({ name }) {
  if (name === "." || name === "..") throw new RequestError("INVALID", "cannot be the root directory");
}
