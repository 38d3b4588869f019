/**
 * The system calls that node does not have. Where the native module cannot be loaded, names are checked before they are
 * taken instead, links of others are not followed, and copies come without extended attributes and holes.
 */
import { createRequire } from "node:module";
import { constants } from "node:os";
import { lstatSync, renameSync, utimesSync } from "node:fs";
import { at, reopen } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";

const cwd = -100;
const noFollow = 0x100;
const follow = 0x400;
const noReplace = 1;
const exchange = 2;
const maxLinkBytes = 4096;
const maxAttributeBytes = 64 << 10;
/** Of lseek(2): the next byte that is no hole, the next hole. */
const seekData = 3;
const seekHole = 4;

/** @typedef {Pick<import("node:fs").BigIntStats, "atimeNs" | "mtimeNs">} Times */
/** @typedef {(...args: unknown[]) => number} Native */
/**
 * @typedef {object} Library
 * @property {() => number} errno
 * @property {Record<"readlinkat" | "renameat2" | "linkat" | "mknodat" | "utimensat" | "listxattr" | "getxattr" | "setxattr" | "lseek" | "syncfs", Native>} calls
 */

/** @returns {Library | undefined} */
function load() {
  try {
    /** @type {typeof import("koffi")} */
    const koffi = createRequire(import.meta.url)("koffi");
    const libc = koffi.load(null);
    // Names are bytes, which need not be UTF-8.
    const calls = {
      readlinkat: libc.func("int64_t readlinkat(int, const uint8_t *, uint8_t *, size_t)"),
      renameat2: libc.func("int renameat2(int, const uint8_t *, int, const uint8_t *, uint32_t)"),
      linkat: libc.func("int linkat(int, const uint8_t *, int, const uint8_t *, int)"),
      mknodat: libc.func("int mknodat(int, const uint8_t *, uint32_t, uint64_t)"),
      utimensat: libc.func("int utimensat(int, const uint8_t *, const int64_t *, int)"),
      listxattr: libc.func("int64_t listxattr(const uint8_t *, uint8_t *, size_t)"),
      getxattr: libc.func("int64_t getxattr(const uint8_t *, const uint8_t *, uint8_t *, size_t)"),
      setxattr: libc.func("int setxattr(const uint8_t *, const uint8_t *, const uint8_t *, size_t, int)"),
      lseek: libc.func("int64_t lseek(int, int64_t, int)"),
      syncfs: libc.func("int syncfs(int)"),
    };
    return { errno: () => koffi.errno(), calls };
  } catch {
    return undefined;
  }
}

/** @param {string} name One character per byte. */
function cString(name) {
  return Buffer.from(`${name}\0`, "latin1");
}

/** What a helper loads at the first request that needs it: some 10 ms and 8 MB. */
export class Syscalls {
  /** @type {Library | undefined} */
  #library;
  #isLoaded = false;

  get #native() {
    if (!this.#isLoaded) this.#library = load();
    this.#isLoaded = true;
    return this.#library;
  }

  /**
   * @param {string} call
   * @returns {Error} With the errno's name as its code.
   */
  #error(call) {
    const errno = this.#native?.errno() ?? 0;
    const [code = "UNKNOWN"] = Object.entries(constants.errno).find(([, value]) => value === errno) ?? [];
    return Object.assign(new Error(`${call}: ${code}`), { code });
  }

  /**
   * Where a symlink points that is open: of this very link, whatever has its name by now.
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
   * Renames to a name that nothing has.
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
      // File systems that cannot promise it.
      if (!hasCode(error, "EINVAL", "ENOSYS")) throw error;
    }
    if (exists(toParent, to)) throw Object.assign(new Error("EEXIST"), { code: "EEXIST" });
    renameSync(at(fromParent, from), at(toParent, to));
  }

  /**
   * Gives two names each other's file.
   * @param {number} oneParent
   * @param {string} one
   * @param {number} otherParent
   * @param {string} other
   * @returns {boolean} Whether the file system can do that.
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
   * Gives an open file that has no name one that nothing has.
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

  /** Whether {@link link} can be had. */
  get canLink() {
    return this.#native !== undefined;
  }

  /**
   * Makes a FIFO, a socket's place or a device.
   * @param {number} parent
   * @param {string} name
   * @param {number} mode With the type.
   * @param {number} device
   */
  makeNode(parent, name, mode, device) {
    const native = this.#native;
    if (!native) throw new RequestError("WRONG_TYPE", "is neither file, directory nor link");
    if (native.calls.mknodat(parent, cString(name), mode, device) !== 0) throw this.#error("mknodat");
  }

  /**
   * Sets when something was read and written last; of a link, not of what it points to.
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
   * Likewise of what is open.
   * @param {number} fd
   * @param {Times} stats
   */
  setTimesOf(fd, { atimeNs, mtimeNs }) {
    const native = this.#native;
    if (!native) {
      utimesSync(reopen(fd), Number(atimeNs) / 1e9, Number(mtimeNs) / 1e9);
      return;
    }
    const times = new BigInt64Array([...parts(atimeNs), ...parts(mtimeNs)]);
    if (native.calls.utimensat(cwd, cString(reopen(fd)), times, 0) !== 0) throw this.#error("utimensat");
  }

  /**
   * Copies what extended attributes, access lists among them, this user may set.
   * @param {number} from Neither is a symlink.
   * @param {number} to
   */
  copyAttributes(from, to) {
    const native = this.#native;
    if (!native) return;
    const { listxattr, getxattr, setxattr } = native.calls;
    const source = cString(reopen(from));
    const length = listxattr(source, null, 0);
    if (length <= 0) return;
    const list = Buffer.alloc(Math.min(length + 1024, maxAttributeBytes));
    const listed = listxattr(source, list, list.length);
    if (listed <= 0) return;
    const target = cString(reopen(to));
    const value = Buffer.alloc(maxAttributeBytes);
    for (const name of list.toString("latin1", 0, listed).split("\0")) {
      if (name === "") continue;
      const size = getxattr(source, cString(name), value, value.length);
      if (size < 0) continue;
      // As `cp -a`: what cannot be kept, on another kind of file system or by this user, is not worth the copy.
      setxattr(target, cString(name), value, size, 0);
    }
  }

  /**
   * The next stretch of a file that is no hole.
   * @param {number} fd
   * @param {number} from
   * @param {number} size
   * @returns {{ start: number, end: number } | undefined} `undefined` when only a hole is left.
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
   * Brings a file system to its disk. Not on this thread: it takes as long as the disk does.
   * @param {number} fd
   * @returns {Promise<void>}
   */
  syncFileSystem(fd) {
    const native = this.#native;
    if (!native) return Promise.resolve();
    const call = /** @type {Native & { async: Function }} */ (native.calls.syncfs);
    return new Promise((resolve) => call.async(fd, () => resolve()));
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
