/**
 * System calls that Node lacks. If the native module cannot be loaded, names are checked before use instead, links of
 * other users are not followed, and copies lose extended attributes and holes.
 */
import { constants } from "node:os";
import {
  fstatSync,
  futimesSync,
  lstatSync,
  openSync,
  readSync,
  renameSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { loadKoffi } from "../../../sys/koffi.mjs";
import { at, ownedFd, reopen } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";

const cwd = -100;
const noFollow = 0x100;
const follow = 0x400;
const noAutomount = 0x800;
const emptyPath = 0x1000;
const noName = Buffer.alloc(1);
/** All basic fields of statx(2). */
const basicStats = 0x7ff;
const statxBytes = 256;
const noReplace = 1;
const exchange = 2;
const closeOnExec = 0o2000000;
const maxLinkBytes = 4096;
const maxAttributeBytes = 64 << 10;
/** For lseek(2): the next data, the next hole. */
const seekData = 3;
const seekHole = 4;
/** For sync_file_range(2). */
const beginWriting = 2;
/** For ioctl(2): shares all blocks of a file. The value is the same on all common architectures of Linux. */
const ficlone = 0x40049409;

/** @typedef {Pick<import("node:fs").BigIntStats, "atimeNs" | "mtimeNs">} Times */
/**
 * @typedef {Pick<import("node:fs").BigIntStats, "ino" | "size" | "blocks" | "mtimeNs" | "ctimeNs"> & Record<"mode" |
 *   "uid" | "gid" | "nlink" | "dev", bigint | number>} EntryStats `dev`: equal within a file system, as this process
 *   sees it.
 */
/** @typedef {(...args: unknown[]) => number} Native */
/**
 * @typedef {object} Library
 * @property {() => number} errno
 * @property {Record<"openat" | "statx" | "ioctl" | "copy_file_range" | "readlinkat" | "renameat2" | "linkat" | "mknodat" | "utimensat" | "futimens" | "listxattr" | "getxattr" | "setxattr" | "flistxattr" | "fgetxattr" | "fsetxattr" | "lseek" | "syncfs" | "sync_file_range", Native>} calls
 */

/** @returns {Library | undefined} */
function load() {
  try {
    const koffi = loadKoffi();
    const libc = koffi.load(null);
    // Names are bytes and do not have to be UTF-8. Each call is here for correctness, for security, or for the time that
    // a user would wait without it.
    const calls = {
      // Security: the directory cannot be replaced between its check and the use of a name in it.
      openat: libc.func("int openat(int, const uint8_t *, int, uint32_t)"),
      // Time: listing a directory takes three times as long with lstat(2) by path.
      statx: libc.func("int statx(int, const uint8_t *, int, uint32_t, void *)"),
      // Time: a clone shares its blocks instead of copying them. Node can do so only by path.
      ioctl: libc.func("int ioctl(int, unsigned long, int)"),
      // Time: network file systems copy on the server instead of sending the content twice.
      copy_file_range: libc.func("int64_t copy_file_range(int, void *, int, void *, size_t, uint32_t)"),
      // Security: reads an open link, even if its name now refers to something else.
      readlinkat: libc.func("int64_t readlinkat(int, const uint8_t *, uint8_t *, size_t)"),
      // Correctness: renames without replacing, and swaps two names, in one step.
      renameat2: libc.func("int renameat2(int, const uint8_t *, int, const uint8_t *, uint32_t)"),
      // Correctness: an upload gets its name once it is complete.
      linkat: libc.func("int linkat(int, const uint8_t *, int, const uint8_t *, int)"),
      // Correctness: copies contain FIFOs, socket files and devices.
      mknodat: libc.func("int mknodat(int, const uint8_t *, uint32_t, uint64_t)"),
      // Correctness: times are exact to the nanosecond, also those of links.
      utimensat: libc.func("int utimensat(int, const uint8_t *, const int64_t *, int)"),
      futimens: libc.func("int futimens(int, const int64_t *)"),
      // Correctness: copies and archives have the extended attributes, which contain the ACLs.
      flistxattr: libc.func("int64_t flistxattr(int, uint8_t *, size_t)"),
      fgetxattr: libc.func("int64_t fgetxattr(int, const uint8_t *, uint8_t *, size_t)"),
      fsetxattr: libc.func("int fsetxattr(int, const uint8_t *, const uint8_t *, size_t, int)"),
      // Correctness: the same for files that the user may not open.
      listxattr: libc.func("int64_t listxattr(const uint8_t *, uint8_t *, size_t)"),
      getxattr: libc.func("int64_t getxattr(const uint8_t *, const uint8_t *, uint8_t *, size_t)"),
      setxattr: libc.func("int setxattr(const uint8_t *, const uint8_t *, const uint8_t *, size_t, int)"),
      // Correctness: finds holes, so that a copy of a sparse file does not fill the disk.
      lseek: libc.func("int64_t lseek(int, int64_t, int)"),
      // Time: syncs a copy of thousands of files at once instead of one by one.
      syncfs: libc.func("int syncfs(int)"),
      // Time: the disk writes while the rest of an upload arrives.
      sync_file_range: libc.func("int sync_file_range(int, int64_t, int64_t, uint32_t)"),
    };
    return { errno: () => koffi.errno(), calls };
  } catch {
    return undefined;
  }
}

/** @param {string} name one character per byte */
function cString(name) {
  return Buffer.from(`${name}\0`, "latin1");
}

/** Loaded by the first request that needs it; costs about 2 ms and 8 MB. */
export class Syscalls {
  /** @type {Library | undefined} */
  #library;
  #isLoaded = false;
  #statx = new Uint8Array(statxBytes);
  #halves = new Uint16Array(this.#statx.buffer);
  #words = new Uint32Array(this.#statx.buffer);
  #longs = new BigInt64Array(this.#statx.buffer);
  /** Buffers for names of attributes, and for one value. */
  #names = Buffer.alloc(maxAttributeBytes);
  #value = Buffer.alloc(maxAttributeBytes);

  get #native() {
    if (!this.#isLoaded) this.#library = load();
    this.#isLoaded = true;
    return this.#library;
  }

  /**
   * @param {string} call
   * @returns {Error} its code is the name of the errno
   */
  #error(call) {
    const errno = this.#native?.errno() ?? 0;
    const [code = "UNKNOWN"] = Object.entries(constants.errno).find(([, value]) => value === errno) ?? [];
    return Object.assign(new Error(`${call}: ${code}`), { code });
  }

  /**
   * Opens a name in an open directory.
   * @param {number} parent
   * @param {string} name
   * @param {number} flags
   * @param {number} [mode]
   */
  open(parent, name, flags, mode = 0) {
    const native = this.#native;
    if (!native) return openSync(at(parent, name), flags, mode);
    const fd = native.calls.openat(parent, cString(name), flags | closeOnExec, mode);
    if (fd < 0) throw this.#error("openat");
    return fd;
  }

  /**
   * Returns the stats of a name in an open directory. For many names this takes a third of the time of lstat(2) by
   * path.
   * @param {number} parent
   * @param {string} name
   * @returns {EntryStats}
   */
  stat(parent, name) {
    if (!this.#native) return lstatSync(at(parent, name), { bigint: true });
    return this.#stat(parent, cString(name), noFollow | noAutomount);
  }

  /**
   * Returns the stats of a descriptor.
   * @param {number} fd
   * @returns {EntryStats}
   */
  statOf(fd) {
    return this.#native ? this.#stat(fd, noName, emptyPath) : fstatSync(fd, { bigint: true });
  }

  /**
   * @param {number} fd
   * @param {Buffer} name
   * @param {number} flags
   * @returns {EntryStats}
   */
  #stat(fd, name, flags) {
    if (this.#native?.calls.statx(fd, name, flags, basicStats, this.#statx) !== 0) throw this.#error("statx");
    // The layout of statx(2), in the byte order of the host.
    const [halves, words, longs] = [this.#halves, this.#words, this.#longs];
    const time = (/** @type {number} */ index) =>
      (longs[index] ?? 0n) * 1_000_000_000n + BigInt(words[2 * index + 2] ?? 0);
    return {
      mode: halves[14] ?? 0,
      nlink: words[4] ?? 0,
      dev: (words[34] ?? 0) * 2 ** 32 + (words[35] ?? 0),
      blocks: longs[6] ?? 0n,
      uid: words[5] ?? 0,
      gid: words[6] ?? 0,
      ino: longs[4] ?? 0n,
      size: longs[5] ?? 0n,
      ctimeNs: time(12),
      mtimeNs: time(14),
    };
  }

  /**
   * Reads the target of an open symlink, even if its name now refers to something else.
   * @param {number} fd
   * @returns {string}
   */
  readLink(fd) {
    const native = this.#native;
    if (!native) throw new RequestError("SYMLINK", "symbolic links are not followed");
    const target = Buffer.alloc(maxLinkBytes);
    const length = native.calls.readlinkat(fd, cString(""), target, target.length);
    if (length < 0) throw this.#error("readlinkat");
    return target.toString("latin1", 0, length);
  }

  /**
   * Renames without replacing anything.
   * @param {number} fromParent
   * @param {string} from
   * @param {number} toParent
   * @param {string} to
   */
  renameToFree(fromParent, from, toParent, to) {
    const native = this.#native;
    if (native) {
      if (native.calls.renameat2(fromParent, cString(from), toParent, cString(to), noReplace) === 0) return;
      const error = this.#error("renameat2");
      // The file system does not support it.
      if (!hasCode(error, "EINVAL", "ENOSYS")) throw error;
    }
    if (exists(toParent, to)) throw Object.assign(new Error("EEXIST"), { code: "EEXIST" });
    renameSync(at(fromParent, from), at(toParent, to));
  }

  /**
   * Swaps two names.
   * @param {number} oneParent
   * @param {string} one
   * @param {number} otherParent
   * @param {string} other
   * @returns {boolean} whether the file system supports it
   */
  exchange(oneParent, one, otherParent, other) {
    const native = this.#native;
    if (!native) return false;
    if (native.calls.renameat2(oneParent, cString(one), otherParent, cString(other), exchange) === 0)
      return true;
    const error = this.#error("renameat2");
    if (hasCode(error, "EINVAL", "ENOSYS")) return false;
    throw error;
  }

  /**
   * Gives an unnamed open file a name; fails if the name exists.
   * @param {number} fd
   * @param {number} parent
   * @param {string} name
   */
  link(fd, parent, name) {
    const native = this.#native;
    if (!native) throw new RequestError("WRONG_TYPE", "cannot be given a name");
    if (native.calls.linkat(cwd, cString(reopen(fd)), parent, cString(name), follow) !== 0) {
      throw this.#error("linkat");
    }
  }

  /**
   * Creates a FIFO, a socket file or a device.
   * @param {number} parent
   * @param {string} name
   * @param {number} mode with the type
   * @param {number} device
   */
  makeNode(parent, name, mode, device) {
    const native = this.#native;
    if (!native) throw new RequestError("WRONG_TYPE", "is not a file, directory or link");
    if (native.calls.mknodat(parent, cString(name), mode, device) !== 0) throw this.#error("mknodat");
  }

  /**
   * Sets access and modification time; for a link, of the link itself.
   * @param {number} parent
   * @param {string} name
   * @param {Times} stats
   */
  setTimes(parent, name, { atimeNs, mtimeNs }) {
    const native = this.#native;
    if (!native) return;
    const times = new BigInt64Array([...parts(atimeNs), ...parts(mtimeNs)]);
    if (native.calls.utimensat(parent, cString(name), times, noFollow) !== 0) throw this.#error("utimensat");
  }

  /**
   * Sets access and modification time of a descriptor.
   * @param {number} fd
   * @param {Times} stats
   * @param {{ isPathOnly?: boolean }} [options] `isPathOnly`: opened with O_PATH, which most calls do not accept
   */
  setTimesOf(fd, { atimeNs, mtimeNs }, { isPathOnly = true } = {}) {
    const native = this.#native;
    if (!native) {
      const [read, written] = [Number(atimeNs) / 1e9, Number(mtimeNs) / 1e9];
      if (isPathOnly) utimesSync(reopen(fd), read, written);
      else futimesSync(fd, read, written);
      return;
    }
    const times = new BigInt64Array([...parts(atimeNs), ...parts(mtimeNs)]);
    const { utimensat, futimens } = native.calls;
    const failed = isPathOnly ? utimensat(cwd, cString(reopen(fd)), times, 0) : futimens(fd, times);
    if (failed !== 0) throw this.#error(isPathOnly ? "utimensat" : "futimens");
  }

  /**
   * Copies extended attributes, including ACLs, as far as this user may set them.
   * @param {number} from neither is a symlink
   * @param {number} to
   * @param {{ isPathOnly?: boolean }} [options] `isPathOnly`: either was opened with O_PATH
   * @returns {boolean} whether there are any
   */
  copyAttributes(from, to, { isPathOnly = true } = {}) {
    const native = this.#native;
    if (!native) return false;
    const set = isPathOnly ? native.calls.setxattr : native.calls.fsetxattr;
    const target = isPathOnly ? cString(reopen(to)) : to;
    let hasAny = false;
    for (const [name, value] of this.attributes(from, { isPathOnly })) {
      // As `cp -a`: attributes that the file system or this user cannot set do not fail the copy.
      set(target, cString(name), value, value.length, 0);
      hasAny = true;
    }
    return hasAny;
  }

  /**
   * Yields extended attributes, including ACLs, as far as this user may read them. A value is only valid until the next
   * one: all values of a file may be hundreds of megabytes.
   * @param {number} fd
   * @param {{ isPathOnly?: boolean }} [options] `isPathOnly`: opened with O_PATH; not a symlink
   * @returns {Generator<[name: string, value: Buffer], void, void>}
   */
  *attributes(fd, { isPathOnly = false } = {}) {
    const native = this.#native;
    if (!native) return;
    const { listxattr, getxattr, flistxattr, fgetxattr } = native.calls;
    const [list, get] = isPathOnly ? [listxattr, getxattr] : [flistxattr, fgetxattr];
    const source = isPathOnly ? cString(reopen(fd)) : fd;
    const listed = list(source, this.#names, this.#names.length);
    if (listed <= 0) return;
    for (const name of this.#names.toString("latin1", 0, listed).split("\0")) {
      if (name === "") continue;
      const size = get(source, cString(name), this.#value, this.#value.length);
      if (size >= 0) yield [name, this.#value.subarray(0, size)];
    }
  }

  /** Whether the native system calls are available. */
  get isNative() {
    return this.#native !== undefined;
  }

  /**
   * Copies the first bytes of a file to an empty one, sharing blocks if the file system supports it.
   * @param {number} from
   * @param {number} to
   * @param {number} size
   */
  copyContent(from, to, size) {
    const native = this.#native;
    if (native?.calls.ioctl(to, ficlone, from) === 0) return;
    let remaining = size;
    while (native && remaining > 0) {
      const copied = native.calls.copy_file_range(from, null, to, null, remaining, 0);
      // Not supported between some file systems, and for generated files such as those in /proc.
      if (copied <= 0) break;
      remaining -= copied;
    }
    if (remaining === 0) return;
    const buffer = Buffer.allocUnsafe(remaining);
    // A read may return fewer bytes, and none at the end.
    for (let bytes = -1; remaining > 0 && bytes !== 0; remaining -= bytes) {
      bytes = readSync(from, buffer, 0, remaining, null);
      for (let written = 0; written < bytes;) written += writeSync(to, buffer, written, bytes - written);
    }
  }

  /**
   * Finds the next stretch of a file that is not a hole.
   * @param {number} fd
   * @param {number} from
   * @param {number} size
   * @returns {{ start: number, end: number } | undefined} `undefined` if only a hole is left
   */
  nextData(fd, from, size) {
    const native = this.#native;
    if (!native) return from < size ? { start: from, end: size } : undefined;
    const start = native.calls.lseek(fd, from, seekData);
    if (start < 0) return undefined;
    const end = native.calls.lseek(fd, start, seekHole);
    return { start, end: end < 0 ? size : end };
  }

  /**
   * Syncs the file system of a directory to disk, on another thread, because it takes as long as the disk needs.
   * @param {number} directory
   */
  async syncTree(directory) {
    const native = this.#native;
    if (!native) return;
    using readable = ownedFd(openSync(reopen(directory), "r"));
    const call = /** @type {Native & { async: Function }} */ (native.calls.syncfs);
    await new Promise((resolve) => call.async(readable.fd, resolve));
  }

  /**
   * Starts writing a file's data to disk without waiting. fsync(2) reports errors.
   * @param {number} fd
   * @returns {Promise<void>}
   */
  beginWriteBack(fd) {
    const native = this.#native;
    if (!native) return Promise.resolve();
    const call = /** @type {Native & { async: Function }} */ (native.calls.sync_file_range);
    return new Promise((resolve) => call.async(fd, 0, 0, beginWriting, () => resolve()));
  }
}

/** @param {bigint} nanoseconds */
function parts(nanoseconds) {
  const seconds = nanoseconds / 1_000_000_000n;
  const rest = nanoseconds % 1_000_000_000n;
  return rest < 0n ? [seconds - 1n, rest + 1_000_000_000n] : [seconds, rest];
}

/**
 * @param {number} parent
 * @param {string} name
 */
export function exists(parent, name) {
  return lstatSync(at(parent, name), { throwIfNoEntry: false }) !== undefined;
}
