/**
 * Unpacks entries of untrusted archives into a directory that nobody else can enter. Each name is accessed by a
 * descriptor of its parent directory, so that links of the archive lead nowhere. Nothing replaces an earlier entry.
 */
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { O_PATH, at, descend, ownedFd, openPath, openSubdirectory, reopen } from "../../directory.mjs";
import { RequestError, hasCode } from "../../request-error.mjs";
import { spell } from "../spelling.mjs";

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY, O_DIRECTORY } = constants;
const maxDepth = 1000;
const maxTargetBytes = 4095;
const zeros = Buffer.alloc(256 << 10);
const second = 1_000_000_000n;
/** The first and the last second that common file systems support. */
const minSecs = -(2n ** 31n);
const maxSecs = 2n ** 32n - 1n;

/**
 * @typedef {object} UnpackedEntry
 * @property {string} path one character per byte
 * @property {"file" | "directory" | "symlink" | "hardlink" | "fifo" | "device"} type
 * @property {string} target of a link
 * @property {number} mode
 * @property {string} mtime seconds since 1970, with a fraction
 */

export class UnpackSink {
  #syscalls;
  #root;
  #budget;
  /** The directory that was entered last. @type {{ path: string, fd: number } | undefined} */
  #entered;
  /** The file that is being written. @type {{ fd: number, entry: UnpackedEntry } | undefined} */
  #file;
  #position = 0;
  #endsWithHole = false;
  /**
   * Directories get their modes and times when their content is complete. @type {{ path: string, mode: number,
   * mtime: string }[]}
   */
  #directories = [];

  /**
   * @param {import("../syscalls.mjs").Syscalls} syscalls
   * @param {number} root
   * @param {import("./budget.mjs").Budget} budget
   */
  constructor(syscalls, root, budget) {
    this.#syscalls = syscalls;
    this.#root = root;
    this.#budget = budget;
  }

  /**
   * @param {UnpackedEntry} entry a file's content follows
   * @throws RequestError `REFUSED`, `LIMIT`
   */
  begin(entry) {
    const names = namesOf(entry.path);
    const name = names.pop();
    this.#budget.takeEntry();
    if (name === undefined) {
      if (entry.type !== "directory") throw refused(entry.path, "has no name");
      return;
    }
    try {
      this.#make(this.#enter(names), name, [...names, name].join("/"), entry);
    } catch (error) {
      if (hasCode(error, "ENAMETOOLONG")) throw refused(entry.path, "has a name that is too long");
      if (hasCode(error, "EEXIST")) throw refused(entry.path, "occurs twice");
      if (hasCode(error, "SYMLINK", "ELOOP", "ENOTDIR"))
        throw refused(entry.path, "has a parent that is not a directory");
      throw error;
    }
  }

  /** Writes content; zeros become a hole, which uses no disk. @param {Buffer} piece */
  write(piece) {
    if (isZero(piece)) {
      this.#budget.exemptZeros(piece.length);
      this.skip(piece.length);
      return;
    }
    this.#budget.takeBytes(piece.length);
    const fd = this.#file?.fd ?? -1;
    for (let from = 0; from < piece.length;)
      from += writeSync(fd, piece, from, piece.length - from, this.#position + from);
    this.#position += piece.length;
    this.#endsWithHole = false;
  }

  /** Leaves a hole in the current file. @param {number} length */
  skip(length) {
    this.#budget.takeBytes(length);
    this.#position += length;
    this.#endsWithHole = true;
  }

  /** Ends the current file. */
  end() {
    if (!this.#file) return;
    const { fd, entry } = this.#file;
    this.#file = undefined;
    try {
      if (this.#endsWithHole) ftruncateSync(fd, this.#position);
      fchmodSync(fd, entry.mode & 0o777);
      this.#syscalls.setTimesOf(fd, timesOf(entry));
    } finally {
      closeSync(fd);
    }
  }

  /**
   * Sets modes and times of directories, the inner ones first.
   * @returns {(directory: number) => void} does this for the top-level directories after they have been moved: a
   *   read-only directory cannot be moved
   */
  finish() {
    const isOuter = (/** @type {{ path: string }} */ { path }) => !path.includes("/");
    const outer = this.#directories
      .filter(isOuter)
      .map((entry) => ({ ...entry, ...identityOf(this.#enter([entry.path])) }));
    for (const entry of this.#directories.reverse()) {
      if (!isOuter(entry)) this.#applyAttributes(this.#enter(entry.path.split("/")), entry);
    }
    return (directory) => {
      for (const entry of outer) {
        const fd = openSubdirectory(directory, entry.path);
        const { dev, ino } = identityOf(fd);
        if (dev === entry.dev && ino === entry.ino) this.#applyAttributes(fd, entry);
        closeSync(fd);
      }
    };
  }

  [Symbol.dispose]() {
    if (this.#file) closeSync(this.#file.fd);
    if (this.#entered) closeSync(this.#entered.fd);
    this.#file = this.#entered = undefined;
  }

  /**
   * @param {number} fd
   * @param {{ mode: number, mtime: string }} entry
   */
  #applyAttributes(fd, entry) {
    // Root's directories do not pass their group on: it would be root's, to files of other users.
    chmodSync(reopen(fd), entry.mode & (process.geteuid?.() === 0 ? 0o1777 : 0o3777));
    this.#syscalls.setTimesOf(fd, timesOf(entry));
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {string} path
   * @param {UnpackedEntry} entry
   */
  #make(parent, name, path, entry) {
    const { type, target, mode, mtime } = entry;
    switch (type) {
      case "directory":
        try {
          mkdirSync(at(parent, name), 0o700);
        } catch (error) {
          if (!hasCode(error, "EEXIST")) throw error;
          closeSync(openSubdirectory(parent, name));
        }
        this.#directories.push({ path, mode, mtime });
        return;
      case "file":
        if ((mode & 0o6000) !== 0) throw refused(path, "has a setuid or setgid bit");
        this.#position = 0;
        this.#endsWithHole = false;
        this.#file = {
          fd: openSync(at(parent, name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600),
          entry,
        };
        return;
      case "symlink":
        if (target === "" || target.includes("\0") || target.length > maxTargetBytes) {
          throw refused(path, "is a link without a target");
        }
        symlinkSync(Buffer.from(target, "latin1"), at(parent, name));
        this.#syscalls.setTimes(parent, name, timesOf(entry));
        return;
      case "hardlink":
        this.#link(parent, name, path, target);
        return;
      default:
        throw refused(path, "is not a file, directory or link");
    }
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {string} path
   * @param {string} target
   */
  #link(parent, name, path, target) {
    const names = namesOf(target);
    const last = names.pop();
    // A new descriptor, because entering the target's directory closes the current one.
    using own = ownedFd(openPath(parent, "."));
    try {
      if (last === undefined) throw refused(path, "is a link without a target");
      linkSync(at(this.#enter(names, false), last), at(own.fd, name));
    } catch (error) {
      if (hasCode(error, "ENOENT", "SYMLINK", "ENOTDIR", "ELOOP", "EPERM")) {
        throw refused(path, "is a hard link to an entry that is not in the archive");
      }
      throw error;
    }
  }

  /**
   * @param {string[]} names
   * @param {boolean} [make] whether to create missing directories
   * @returns {number} a descriptor that is valid until the next call
   */
  #enter(names, make = true) {
    const path = names.join("/");
    if (this.#entered?.path === path) return this.#entered.fd;
    const root = openSync(reopen(this.#root), O_PATH | O_DIRECTORY);
    const fd = descend(root, names, (above, name) => this.#step(above, name, make));
    if (this.#entered) closeSync(this.#entered.fd);
    this.#entered = { path, fd };
    return fd;
  }

  /**
   * @param {number} fd
   * @param {string} name
   * @param {boolean} make
   */
  #step(fd, name, make) {
    try {
      return openSubdirectory(fd, name);
    } catch (error) {
      if (!make || !hasCode(error, "ENOENT")) throw error;
      mkdirSync(at(fd, name), 0o755);
      return openSubdirectory(fd, name);
    }
  }
}

/** @param {Buffer} bytes */
function isZero(bytes) {
  if (bytes.length === 0 || bytes[0] !== 0) return false;
  for (let from = 0; from < bytes.length; from += zeros.length) {
    const piece = bytes.subarray(from, from + zeros.length);
    if (!piece.equals(zeros.subarray(0, piece.length))) return false;
  }
  return true;
}

/** @param {number} fd */
function identityOf(fd) {
  const { dev, ino } = fstatSync(fd);
  return { dev, ino };
}

/** @param {{ mtime: string }} entry */
function timesOf({ mtime }) {
  const [, sign = "", digits = "0", fraction = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(mtime) ?? [];
  const distance = BigInt(digits) * second + BigInt(fraction.slice(0, 9).padEnd(9, "0"));
  const signed = sign === "" ? distance : -distance;
  const [first, last] = [minSecs * second, maxSecs * second];
  const ns = signed < first ? first : signed > last ? last : signed;
  return { atimeNs: ns, mtimeNs: ns };
}

/**
 * @param {string} path
 * @throws RequestError `REFUSED` for a path that leads outside
 */
function namesOf(path) {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (path.startsWith("/") || names.includes("..")) throw refused(path, "is outside of the archive");
  if (path.includes("\0")) throw refused(path, "has a name with a NUL byte");
  if (names.length > maxDepth) throw refused(path, `lies deeper than ${maxDepth} directories`);
  return names;
}

/**
 * @param {string} path
 * @param {string} why
 */
export function refused(path, why) {
  return new RequestError("REFUSED", `has an entry ${JSON.stringify(spell(path.slice(0, 256)))} that ${why}`);
}
