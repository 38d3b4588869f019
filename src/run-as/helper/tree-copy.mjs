/**
 * Copies trees with modes, owners (if this user may set them), times, links, holes, extended attributes and reflinks.
 * Both ends are walked by descriptors: an entry that is swapped for a link in the meantime is copied as a link, never
 * followed.
 */
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  copyFileSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  symlinkSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { O_PATH, at, ownedFd, namesIn, openForReading, openPath, reopen } from "./directory.mjs";
import { DirectoryStack } from "./directory-stack.mjs";
import { spell } from "./host/spelling.mjs";
import { hasCode, RequestError } from "./request-error.mjs";
import { Slices } from "./slices.mjs";

const { COPYFILE_EXCL, COPYFILE_FICLONE_FORCE } = constants;
const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NONBLOCK, O_NOCTTY, O_NOFOLLOW, O_DIRECTORY } = constants;
/** Files up to this size are copied with one call. */
const oneCallBytes = 2 << 20;
const blockBytes = 1 << 20;

/** @typedef {import("node:fs").BigIntStats} BigIntStats */
/** @typedef {import("./host/syscalls.mjs").Syscalls} Syscalls */

export class TreeCopy {
  #syscalls;
  #report;
  #signal;
  #slices;
  #isRoot = process.geteuid?.() === 0;
  /** Copied files with several links: their names in the stage, by device and inode. @type {Map<string, string>} */
  #linked = new Map();
  #stage;
  copiedBytes = 0;

  /**
   * @param {Syscalls} syscalls
   * @param {number} stage the directory to copy to
   * @param {(doneBytes: number) => void} report
   * @param {AbortSignal} signal
   */
  constructor(syscalls, stage, report, signal) {
    this.#syscalls = syscalls;
    this.#stage = stage;
    this.#report = report;
    this.#signal = signal;
    this.#slices = new Slices(signal);
  }

  /**
   * @param {number} parent
   * @param {string} name of the source
   * @param {string} item name of the copy in the stage
   * @param {string} base its escaped path, for error messages
   * @returns {Promise<() => void>} sets a directory's attributes; call it after the move, because a read-only directory
   *   cannot be moved
   */
  async run(parent, name, item, base) {
    const stats = lstatSync(at(parent, name), { bigint: true });
    if (!stats.isDirectory()) {
      if (!(await this.#entry(parent, name, this.#stage, item, () => item))) {
        throw new RequestError("MOVED", "was moved while it was copied");
      }
      return () => undefined;
    }
    return this.#tree(parent, name, item, base);
  }

  /**
   * Copies the content of a directory into the stage, which is empty, and the directory's attributes.
   * @param {number} source
   * @param {ReadonlySet<string>} excluded paths relative to it (latin1)
   */
  async runContent(source, excluded) {
    using from = new DirectoryStack(source);
    using to = new DirectoryStack(this.#stage);
    const stats = fstatSync(source, { bigint: true });
    await this.#content(from, to, { item: ".", base: "", excluded });
    this.#attributes(source, this.#stage, stats);
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {string} item
   * @param {string} base
   */
  async #tree(parent, name, item, base) {
    using from = new DirectoryStack(parent);
    using to = new DirectoryStack(this.#stage);
    this.#enter(from, name, to, item);
    const stats = fstatSync(from.fd, { bigint: true });
    await this.#content(from, to, { item, base, excluded: new Set() });
    return this.#later(from.fd, to.fd, stats);
  }

  /**
   * Copies everything in the current directory.
   * @param {DirectoryStack} from
   * @param {DirectoryStack} to
   * @param {{ item: string, base: string, excluded: ReadonlySet<string> }} start `item`: path of the copy in the stage;
   *   `base`: escaped path of the source, for error messages; `excluded`: paths relative to the source
   */
  async #content(from, to, { item, base, excluded }) {
    const levelOf = (/** @type {string} */ name) => ({
      name,
      names: [...namesIn(from.fd)].reverse(),
      stats: fstatSync(from.fd, { bigint: true }),
    });
    const levels = [levelOf("")];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      if (this.#slices.isOver) await this.#rest();
      const next = level.names.pop();
      if (next === undefined) {
        levels.pop();
        if (levels.length === 0) return;
        this.#attributes(from.fd, to.fd, level.stats);
        from.leave();
        to.leave();
        continue;
      }
      const names = () => [...levels.slice(1).map((each) => each.name), next];
      if (excluded.size > 0 && excluded.has(names().join("/"))) continue;
      try {
        if (await this.#entry(from.fd, next, to.fd, next, () => [item, ...names()].join("/"))) continue;
        this.#enter(from, next, to, next);
        levels.push(levelOf(next));
      } catch (error) {
        // The tree is in use: entries that have disappeared are skipped.
        if (hasCode(error, "ENOENT")) continue;
        throw this.#named(error, [...(base === "" ? [] : [base]), ...names().map(spell)].join("/"));
      }
    }
  }

  /**
   * Enters a directory and its new copy.
   * @param {DirectoryStack} from
   * @param {string} name
   * @param {DirectoryStack} to
   * @param {string} item
   */
  #enter(from, name, to, item) {
    from.enter(name);
    try {
      mkdirSync(at(to.fd, item), 0o700);
      to.enter(item);
    } catch (error) {
      // Not a source that has disappeared.
      if (hasCode(error, "ENOENT")) throw new RequestError("MOVED", "was moved while it was copied to");
      throw error;
    }
  }

  /**
   * @param {unknown} error
   * @param {string} path
   */
  #named(error, path) {
    if (this.#signal.aborted || !(error instanceof Error) || !("code" in error)) return error;
    return Object.assign(new Error(error.message), { code: error.code, subject: path });
  }

  async #rest() {
    this.#report(this.copiedBytes);
    await this.#slices.nextSlice();
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {number} target
   * @param {string} as
   * @param {() => string} path of the copy in the stage
   * @returns {Promise<boolean>} `false` for a directory, which is not copied here
   */
  async #entry(parent, name, target, as, path) {
    using source = ownedFd(this.#syscalls.open(parent, name, O_PATH | O_NOFOLLOW));
    const stats = fstatSync(source.fd, { bigint: true });
    if (stats.isDirectory()) return false;
    const key = stats.nlink > 1n ? `${stats.dev}:${stats.ino}` : undefined;
    if (key !== undefined && this.#linkAgain(key, target, as)) return true;
    if (stats.isFile()) await this.#file(source.fd, stats, target, as);
    else if (stats.isSymbolicLink()) this.#link(parent, name, stats, target, as);
    else this.#node(stats, target, as);
    if (key !== undefined) this.#linked.set(key, path());
    return true;
  }

  /**
   * @param {string} key
   * @param {number} target
   * @param {string} as
   */
  #linkAgain(key, target, as) {
    const first = this.#linked.get(key);
    if (first === undefined) return false;
    try {
      linkSync(at(this.#stage, first), at(target, as));
      return true;
    } catch (error) {
      // More links than the file system supports, or a path that is too long for one call.
      if (hasCode(error, "EMLINK", "ENAMETOOLONG", "EPERM")) return false;
      throw error;
    }
  }

  /**
   * @param {number} source
   * @param {BigIntStats} stats
   * @param {number} target
   * @param {string} as
   */
  async #file(source, stats, target, as) {
    const size = Number(stats.size);
    const isSparse = stats.blocks * 512n < stats.size;
    if (size <= oneCallBytes && !isSparse) {
      this.#smallFile(source, stats, target, as);
      return;
    }
    const copy = at(target, as);
    await this.#largeFile(source, copy);
    using made = ownedFd(openSync(copy, O_PATH | O_NOFOLLOW));
    this.#attributes(source, made.fd, stats);
  }

  /**
   * Uses as few system calls as possible: for many small files they are most of the work.
   * @param {number} source
   * @param {BigIntStats} stats
   * @param {number} target
   * @param {string} as
   */
  #smallFile(source, stats, target, as) {
    using from = ownedFd(openSync(reopen(source), O_RDONLY | O_NONBLOCK | O_NOCTTY));
    const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    // A new directory gets its mode last. Until then only this user can enter it.
    using made = ownedFd(this.#syscalls.open(target, as, flags, Number(stats.mode) & 0o777));
    const to = made.fd;
    this.#syscalls.copyContent(from.fd, to, Number(stats.size));
    this.copiedBytes += Number(stats.size);
    const own = fstatSync(to);
    const mode = this.#modeOf(own, stats, (uid, gid) => fchownSync(to, uid, gid));
    const hasMore = this.#syscalls.copyAttributes(from.fd, to, { isPathOnly: false });
    // A change of owner clears setuid and setgid, which are set again here.
    if (hasMore || (own.mode & 0o7777) !== mode) fchmodSync(to, mode);
    this.#syscalls.setTimesOf(to, stats, { isPathOnly: false });
  }

  /**
   * @param {number} source
   * @param {Buffer} copy
   */
  async #largeFile(source, copy) {
    await using from = await openForReading(source);
    const { size } = await from.stat();
    try {
      copyFileSync(reopen(source), copy, COPYFILE_EXCL | COPYFILE_FICLONE_FORCE);
      this.copiedBytes += size;
      return;
    } catch (error) {
      if (!hasCode(error, "ENOTSUP", "EOPNOTSUPP", "EXDEV", "EINVAL", "ENOTTY", "ENOSYS", "EIO")) throw error;
    }
    await using to = await open(copy, "wx", 0o600);
    const buffer = Buffer.allocUnsafe(blockBytes);
    for (let data = this.#syscalls.nextData(from.fd, 0, size); data;) {
      for (let position = data.start; position < data.end;) {
        this.#signal.throwIfAborted();
        const maxBytes = Math.min(buffer.length, data.end - position);
        const { bytesRead } = await from.read(buffer, 0, maxBytes, position);
        if (bytesRead === 0) break;
        await to.write(buffer, 0, bytesRead, position);
        position += bytesRead;
        this.copiedBytes += bytesRead;
        this.#report(this.copiedBytes);
      }
      data = this.#syscalls.nextData(from.fd, data.end, size);
    }
    await to.truncate(size);
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {BigIntStats} stats
   * @param {number} target
   * @param {string} as
   */
  #link(parent, name, stats, target, as) {
    symlinkSync(readlinkSync(at(parent, name), "buffer"), at(target, as));
    try {
      lchownSync(at(target, as), Number(stats.uid), Number(stats.gid));
    } catch (error) {
      if (!hasCode(error, "EPERM")) throw error;
    }
    this.#syscalls.setTimes(target, as, stats);
  }

  /**
   * @param {BigIntStats} stats
   * @param {number} target
   * @param {string} as
   */
  #node(stats, target, as) {
    this.#syscalls.makeNode(target, as, Number(stats.mode), Number(stats.rdev));
    using made = ownedFd(openPath(target, as));
    this.#attributes(made.fd, made.fd, stats);
  }

  /**
   * @param {number} source
   * @param {number} made
   * @param {BigIntStats} stats
   */
  #later(source, made, stats) {
    const from = openSync(reopen(source), O_PATH | O_DIRECTORY);
    const to = openSync(reopen(made), O_PATH | O_DIRECTORY);
    return () => {
      try {
        this.#attributes(from, to, stats);
      } finally {
        closeSync(from);
        closeSync(to);
      }
    };
  }

  /**
   * @param {number} source
   * @param {number} made its copy
   * @param {BigIntStats} stats
   */
  #attributes(source, made, stats) {
    const own = fstatSync(made);
    const mode = this.#modeOf(own, stats, (uid, gid) => chownSync(reopen(made), uid, gid));
    this.#syscalls.copyAttributes(source, made);
    chmodSync(reopen(made), mode);
    this.#syscalls.setTimesOf(made, stats);
  }

  /**
   * Sets owner and group of a copy, as far as this user may.
   * @param {import("node:fs").Stats} own of the copy
   * @param {BigIntStats} stats
   * @param {(uid: number, gid: number) => void} chown
   * @returns {number} the permission bits that the copy may get
   */
  #modeOf(own, { uid, gid, mode }, chown) {
    const bits = Number(mode) & 0o7777;
    if (own.uid === Number(uid) && own.gid === Number(gid)) return bits;
    try {
      chown(this.#isRoot ? Number(uid) : -1, Number(gid));
      if (this.#isRoot || own.uid === Number(uid)) return bits;
    } catch (error) {
      if (!hasCode(error, "EPERM")) throw error;
    }
    // A setuid or setgid file must not run as another user than before.
    return bits & 0o1777;
  }
}
