/** Describes one entry of the file system, or all entries of a directory. */
import { constants, lstatSync, readlinkSync } from "node:fs";
import { at, namesIn } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { runInSlices } from "../slices.mjs";
import { withParent, opened } from "./host-path.mjs";
import { bytesOf, spell } from "./spelling.mjs";

const types = new Map([
  [constants.S_IFREG, "file"],
  [constants.S_IFDIR, "directory"],
  [constants.S_IFLNK, "symlink"],
  [constants.S_IFIFO, "fifo"],
  [constants.S_IFSOCK, "socket"],
  [constants.S_IFBLK, "block_device"],
]);
/** Range of a protobuf timestamp (years 1 to 9999) in milliseconds since 1970; some file systems store any number. */
const [earliestMs, latestMs] = [-62_135_596_800_000, 253_402_300_799_999];
/** Names of a directory, held in memory for sorting. */
const maxNames = 1_000_000;
/** Milliseconds to cache the names of a directory for its next page. */
const retentionMs = 10_000;

/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("node:fs").BigIntStats} BigIntStats */
/** @typedef {import("./syscalls.mjs").EntryStats} EntryStats */
/**
 * An entry as sent: name, type, size, mode, uid, gid, last modification in milliseconds, entity tag, target of a link.
 * @typedef {[string, string, number, number, number, number, number, string, string]} SentEntry
 */

/** @param {Pick<EntryStats, "mode">} stats */
export function typeOf({ mode }) {
  return types.get(Number(mode) & constants.S_IFMT) ?? "char_device";
}

/**
 * The entity tag, which changes whenever the content does: inode, size, mtime and ctime.
 * @param {EntryStats} stats
 */
export function tagOf(stats) {
  if (typeOf(stats) !== "file") return "";
  const { ino, size, mtimeNs, ctimeNs } = stats;
  // A radix that is a power of two: others take four times as long, a third of the time of a whole listing.
  return `${ino.toString(32)}-${size.toString(32)}-${mtimeNs.toString(32)}-${ctimeNs.toString(32)}`;
}

/**
 * @param {number} parent
 * @param {string} name
 * @param {EntryStats} stats
 * @returns {SentEntry}
 */
export function describeEntry(parent, name, stats) {
  const type = typeOf(stats);
  return [
    spell(name),
    type,
    Number(stats.size),
    Number(stats.mode) & 0o7777,
    Number(stats.uid),
    Number(stats.gid),
    Math.min(Math.max(Number(stats.mtimeNs / 1_000_000n), earliestMs), latestMs),
    tagOf(stats),
    type === "symlink" ? spell(readlinkSync(at(parent, name), "latin1")) : "",
  ];
}

/**
 * @param {number} parent
 * @param {string} name
 */
export function entryAt(parent, name) {
  return describeEntry(parent, name, lstatSync(at(parent, name), { bigint: true }));
}

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath} target
 */
export async function statPath(syscalls, target) {
  return withParent(syscalls, target, { follow: false }, (found) =>
    opened(found, (_, stats) => describeEntry(found.parent, found.name, stats)),
  );
}

/** Caches the sorted names of the last listed directory. */
export class Listings {
  #key = "";
  /** @type {string[]} */
  #names = [];
  /** @type {NodeJS.Timeout | undefined} */
  #forget;

  /**
   * @param {number} fd
   * @param {BigIntStats} stats
   * @param {AbortSignal} signal
   */
  async names(fd, { dev, ino, mtimeNs, ctimeNs }, signal) {
    const key = [dev, ino, mtimeNs, ctimeNs].join(":");
    if (key === this.#key) return this.#names;
    const names = await runInSlices(readNames(fd), signal);
    this.#key = key;
    this.#names = names.sort();
    clearTimeout(this.#forget);
    this.#forget = setTimeout(() => {
      this.#key = "";
      this.#names = [];
    }, retentionMs).unref();
    return names;
  }
}

/**
 * @param {number} fd
 * @returns {Generator<undefined, string[], void>}
 */
function* readNames(fd) {
  const names = [];
  for (const name of namesIn(fd)) {
    if (names.push(name) > maxNames) throw new RequestError("LIMIT", `has more than ${maxNames} entries`);
    if (names.length % 256 === 0) yield;
  }
  return names;
}

/**
 * Lists a page of a directory, sorted by name.
 * @param {Syscalls} syscalls
 * @param {Listings} listings
 * @param {GuardedPath & { hidden: boolean, after: string, limit: number }} args `after`: the last name of the previous
 *   page
 * @param {AbortSignal} signal
 */
export async function listDirectory(syscalls, listings, { hidden, after, limit, ...target }, signal) {
  return withParent(syscalls, target, { follow: true }, (found) =>
    opened(found, async (fd, stats) => {
      if (!stats.isDirectory()) throw Object.assign(new Error("ENOTDIR"), { code: "ENOTDIR" });
      const names = await listings.names(fd, stats, signal);
      const entries = [];
      const last = bytesOf(after);
      let at = last === "" ? 0 : firstAfter(names, last);
      for (; at < names.length && entries.length < limit; at++) {
        const name = names[at] ?? "";
        if (!hidden && name.startsWith(".")) continue;
        const entry = entryIfThere(syscalls, fd, name);
        if (entry) entries.push(entry);
      }
      return { directory: describeEntry(found.parent, found.name, stats), entries, more: at < names.length };
    }),
  );
}

/**
 * @param {readonly string[]} names
 * @param {string} name
 */
function firstAfter(names, name) {
  let low = 0;
  let high = names.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((names[middle] ?? "") <= name) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * @param {Syscalls} syscalls
 * @param {number} parent
 * @param {string} name
 */
function entryIfThere(syscalls, parent, name) {
  try {
    return describeEntry(parent, name, syscalls.stat(parent, name));
  } catch (error) {
    // Disappeared, or in a directory that allows only reading names.
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}
