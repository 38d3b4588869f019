/**
 * Writes trees of an app as PAX tar, with the permissions of this process: names, owners, times, hard links, holes,
 * extended attributes and ACLs. tar(1) writes the same, but hashing and cutting its output takes longer than reading
 * the files.
 */
import { constants, openSync, readlinkSync } from "node:fs";
import { at, ownedFd, namesIn, openPath, reopen } from "../directory.mjs";
import { headers, padding, timeOf } from "../host/archive/tar-bytes.mjs";
import { hasCode, RequestError } from "../request-error.mjs";
import { DirectoryStack } from "../directory-stack.mjs";
import { accessText } from "./access-text.mjs";
import { blockBytes, dataRanges, rangesText, readContent } from "./file-content.mjs";

const {
  O_DIRECTORY,
  O_NOFOLLOW,
  O_NONBLOCK,
  O_RDONLY,
  S_IFMT,
  S_IFREG,
  S_IFDIR,
  S_IFLNK,
  S_IFIFO,
  S_IFSOCK,
} = constants;
/** tar(1) cannot extract longer paths: PATH_MAX includes the trailing slash and NUL. */
const maxPathBytes = 4094;
const shownBytes = 200;
const accessLists = new Map([
  ["system.posix_acl_access", "SCHILY.acl.access"],
  ["system.posix_acl_default", "SCHILY.acl.default"],
]);

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */
/** @typedef {import("./tar-reader.mjs").EntryType} EntryType */
/** @typedef {import("../host/syscalls.mjs").EntryStats} EntryStats */
/**
 * @template T
 * @typedef {import("./file-content.mjs").Steps<T>} Steps
 */
/** @typedef {Pick<TarEntry, "type"> & Partial<TarEntry> & { records?: [string, string][] }} Details */

/** @typedef {import("./volume-tar.mjs").VolumeHandler & import("./file-content.mjs").ContentReader} TreeHandler */

/**
 * @typedef {object} TreeOptions
 * @property {import("../host/syscalls.mjs").Syscalls} syscalls
 * @property {(path: string) => boolean} isExcluded
 * @property {(path: string, fd: number) => boolean} [isKnown] whether an opened file does not have to be read
 */

export class TreeTar {
  #handler;
  #options;
  /** The first name of each file with several links. @type {Map<string, string>} */
  #linked = new Map();

  /**
   * @param {TreeHandler} handler
   * @param {TreeOptions} options
   */
  constructor(handler, options) {
    this.#handler = handler;
    this.#options = options;
  }

  /**
   * Reads a directory, then everything below it. Entries that disappear are reported and skipped. Each step is a piece
   * of content or an entry, so the caller can wait in between.
   * @param {number} fd
   * @param {string} tree the name of the directory; one character per byte
   * @returns {Steps<void>}
   * @throws Error with the path as its `subject`, for entries that this user may not read
   */
  *read(fd, tree) {
    using stack = new DirectoryStack(fd);
    try {
      const levels = [this.#directory(stack, tree)];
      for (let level = levels.at(-1); level; level = levels.at(-1)) {
        const name = level.names.pop();
        if (name === undefined) {
          if (this.#stat(stack.fd, ".").ctimeNs !== level.ctimeNs) this.#warnChanged(level.path);
          levels.pop();
          if (levels.length > 0) stack.leave();
          continue;
        }
        const path = `${level.path}/${name}`;
        if (this.#options.isExcluded(path)) continue;
        if (path.length > maxPathBytes) {
          this.#warn(
            `${shown(path.slice(0, shownBytes))}…: path is longer than ${maxPathBytes} bytes and was left out`,
          );
          continue;
        }
        const stats = this.#try(path, () => this.#stat(stack.fd, name));
        if (stats === undefined) continue;
        if ((Number(stats.mode) & S_IFMT) !== S_IFDIR) {
          yield* this.#leaf(stack.fd, name, path, stats);
          continue;
        }
        const below = this.#try(path, () => this.#enter(stack, name, path));
        if (below !== undefined) levels.push(below);
        yield;
      }
    } catch (error) {
      throw about(tree, error);
    }
  }

  /**
   * @param {number} parent
   * @param {string} name
   */
  #stat(parent, name) {
    return this.#options.syscalls.stat(parent, name);
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} name
   * @param {string} path
   */
  #enter(stack, name, path) {
    stack.enter(name);
    try {
      return this.#directory(stack, path);
    } catch (error) {
      // A directory that was just removed has no readable names.
      stack.leave();
      throw error;
    }
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} path
   */
  #directory(stack, path) {
    using directory = ownedFd(openSync(reopen(stack.fd), O_RDONLY | O_DIRECTORY));
    const { fd } = directory;
    try {
      const stats = this.#stat(fd, ".");
      const names = [...namesIn(fd)];
      this.#whole(stats, { type: "directory", path, records: this.#attributes(fd) });
      return { path, names, ctimeNs: stats.ctimeNs };
    } catch (error) {
      throw about(path, error);
    }
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {string} path
   * @param {EntryStats} stats
   */
  *#leaf(parent, name, path, stats) {
    const target = this.#linked.get(linkKey(stats));
    if (target !== undefined) {
      this.#whole(stats, { type: "hardlink", path, target });
      yield;
      return;
    }
    switch (Number(stats.mode) & S_IFMT) {
      case S_IFREG:
        yield* this.#file(parent, name, path);
        break;
      case S_IFLNK: {
        const linkTarget = this.#try(path, () => readlinkSync(at(parent, name), "latin1"));
        if (linkTarget === undefined) return;
        this.#whole(stats, { type: "symlink", path, target: linkTarget });
        this.#note(stats, path);
        break;
      }
      case S_IFIFO:
        this.#fifo(parent, name, path);
        break;
      case S_IFSOCK:
        this.#warn(`${shown(path)}: socket ignored`);
        break;
      default:
        this.#warn(`${shown(path)} is a device and was left out`);
    }
    yield;
  }

  /**
   * Not opened: a writer waiting at the other end would take this process for a reader.
   * @param {number} parent
   * @param {string} name
   * @param {string} path
   */
  #fifo(parent, name, path) {
    using entry = this.#try(path, () => ownedFd(openPath(parent, name)));
    if (entry === undefined) return;
    const stats = this.#options.syscalls.statOf(entry.fd);
    if ((Number(stats.mode) & S_IFMT) !== S_IFIFO) {
      this.#warnChanged(path);
      return;
    }
    this.#whole(stats, { type: "fifo", path, records: this.#attributes(entry.fd, { isPathOnly: true }) });
    this.#note(stats, path);
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {string} path
   * @returns {Steps<void>}
   */
  *#file(parent, name, path) {
    const { syscalls, isKnown } = this.#options;
    // The name may now refer to anything: do not wait for a FIFO.
    const flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
    using file = this.#try(path, () => ownedFd(syscalls.open(parent, name, flags)));
    if (file === undefined) return;
    const { fd } = file;
    try {
      const stats = syscalls.statOf(fd);
      if ((Number(stats.mode) & S_IFMT) !== S_IFREG) {
        this.#warnChanged(path);
        return;
      }
      if (isKnown?.(path, fd)) return;
      const size = Number(stats.size);
      const ranges = Number(stats.blocks) * blockBytes < size ? dataRanges(syscalls, fd, size) : undefined;
      const records = this.#attributes(fd);
      let missing = 0;
      if (ranges === undefined) {
        this.#begin(stats, { type: "file", path, records, size, stored: size });
        missing = yield* readContent(fd, { start: 0, end: size }, this.#handler);
      } else {
        const text = rangesText(ranges);
        const stored = ranges.reduce((sum, { start, end }) => sum + end - start, text.length);
        const sparse = /** @type {[string, string][]} */ ([
          ["GNU.sparse.major", "1"],
          ["GNU.sparse.minor", "0"],
          ["GNU.sparse.name", path],
          ["GNU.sparse.realsize", String(size)],
        ]);
        const details = { path, records: [...sparse, ...records], size, stored, sparse: true };
        this.#begin(stats, { type: "file", ...details });
        this.#handler.content(text);
        for (const range of ranges) missing += yield* readContent(fd, range, this.#handler);
        this.#handler.padding(padding(stored));
      }
      if (ranges === undefined) this.#handler.padding(padding(size));
      this.#handler.entryEnd();
      const { ctimeNs } = syscalls.statOf(fd);
      if (missing > 0) this.#warn(`${shown(path)}: file shrank by ${missing} bytes; padded with zeros`);
      else if (ctimeNs !== stats.ctimeNs) this.#warnChanged(path);
      // By the opened file: another file may have had the name before.
      this.#note(stats, path);
    } catch (error) {
      throw about(path, error);
    }
  }

  /**
   * Records the first name of a file with several links.
   * @param {EntryStats} stats
   * @param {string} path
   */
  #note(stats, path) {
    if (stats.nlink > 1) this.#linked.set(linkKey(stats), path);
  }

  /**
   * @param {EntryStats} stats
   * @param {Details} details
   */
  #whole(stats, details) {
    this.#begin(stats, details);
    this.#handler.entryEnd();
  }

  /**
   * @param {EntryStats} stats
   * @param {Details} details
   */
  #begin(stats, { records = [], ...details }) {
    const [seconds, exact] = timeOf(stats.mtimeNs);
    const entry = {
      ...{ path: "", target: "", size: 0, stored: 0, sparse: false, at: 0, dataAt: 0 },
      mode: Number(stats.mode) & 0o7777,
      uid: Number(stats.uid),
      gid: Number(stats.gid),
      mtime: exact ?? String(seconds),
      ...details,
    };
    const { path, type, target, stored: size, mode, uid, gid } = entry;
    const named = { path: type === "directory" ? `${path}/` : path, type: typeFlags[type], target };
    const own = { ...named, size, mode, uid, gid, mtime: seconds, records, isNamed: entry.sparse };
    this.#handler.entry(entry, headers(exact === undefined ? own : { ...own, exactMtime: exact }));
  }

  /**
   * Extended attributes with the names that tar(1) uses.
   * @param {number} fd
   * @param {{ isPathOnly?: boolean }} [options]
   * @returns {[string, string][]}
   */
  #attributes(fd, options) {
    /** @type {[string, string][]} */
    const records = [];
    for (const [name, value] of this.#options.syscalls.attributes(fd, options)) {
      const list = accessLists.get(name);
      if (list !== undefined) records.push([list, accessText(value)]);
      else if (name.startsWith("user.")) {
        const key = name.replaceAll("%", "%25").replaceAll("=", "%3D");
        records.push([`SCHILY.xattr.${key}`, value.toString("latin1")]);
      }
    }
    return records;
  }

  /**
   * @template T
   * @param {string} path
   * @param {() => T} work
   * @returns {T | undefined} undefined for an entry that has disappeared
   */
  #try(path, work) {
    try {
      return work();
    } catch (error) {
      // The name now refers to something else.
      const isGone = hasCode(error, "ENOENT", "ENOTDIR", "ELOOP", "SYMLINK", "ENXIO");
      if (!isGone) throw about(path, error);
      this.#warn(`${shown(path)}: file removed before it was read`);
      return undefined;
    }
  }

  /** @param {string} path */
  #warnChanged(path) {
    this.#warn(`${shown(path)}: file changed as it was read`);
  }

  /** @param {string} warning */
  #warn(warning) {
    this.#handler.warn(warning);
  }
}

/** @type {Readonly<Record<EntryType, string>>} */
export const typeFlags = {
  file: "0",
  hardlink: "1",
  symlink: "2",
  device: "3",
  directory: "5",
  fifo: "6",
};

/** @param {EntryStats} stats */
function linkKey({ dev, ino, nlink }) {
  return nlink > 1 ? `${dev}-${ino}` : "";
}

/** @param {string} path */
export function shown(path) {
  return Buffer.from(path, "latin1").toString();
}

/**
 * @param {string} path
 * @param {unknown} error
 */
function about(path, error) {
  if (error instanceof RequestError || !(error instanceof Error) || "subject" in error) return error;
  return Object.assign(error, { subject: shown(path) });
}
