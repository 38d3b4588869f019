/** Measures the space that trees use: allocated bytes, as du(1) counts them. */
import { accessSync, constants, fstatSync, lstatSync } from "node:fs";
import { at, inDirectory, inParent, namesBelow, namesIn } from "./directory.mjs";
import { hasCode } from "./request-error.mjs";
import { runInSlices } from "./slices.mjs";
import { DirectoryStack } from "./directory-stack.mjs";

/** @typedef {import("./directory.mjs").RootedPath} RootedPath */
/** @typedef {import("node:fs").Stats} Stats */

/** Users can make paths of any length, and the daemon shows them in errors. */
const maxShown = 1024;

/**
 * @param {{ root: string, paths: string[] }} args
 * @param {AbortSignal} signal
 * @returns {Promise<{ sizes: number[], isComplete: boolean, barrier?: string }>} bytes of each path; a file
 *   with several hard links is counted in the first path that contains it. `isComplete` is false if the user may not read
 *   some directory; `barrier` is the path (latin1), below one of the paths, of another user's directory that the user
 *   may not empty
 */
export async function measure({ root, paths }, signal) {
  const measurement = new Measurement();
  const sizes = [];
  for (const path of paths) {
    const before = measurement.allocatedBytes;
    try {
      await measurePath(measurement, { root, path }, signal);
    } catch (error) {
      if (hasCode(error, "EACCES")) measurement.isComplete = false;
      else if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
    }
    sizes.push(measurement.allocatedBytes - before);
  }
  return {
    sizes,
    isComplete: measurement.isComplete,
    ...(measurement.barrier !== undefined && { barrier: measurement.barrier }),
  };
}

/**
 * @param {Measurement} measurement
 * @param {RootedPath} target
 * @param {AbortSignal} signal
 */
async function measurePath(measurement, target, signal) {
  if (namesBelow(target).length === 0) {
    return inDirectory(target, (fd) => runInSlices(measurement.directory(fd), signal));
  }
  return inParent(target, (parent, name) => {
    if (!lstatSync(at(parent, name)).isDirectory()) {
      measurement.count(parent, name);
      return;
    }
    return inDirectory(target, (fd) => runInSlices(measurement.directory(fd), signal));
  });
}

export class Measurement {
  allocatedBytes = 0;
  entries = 0;
  /** Whether all directories could be read. */
  isComplete = true;
  /**
   * Path (latin1) of a directory that the user may not empty, apart from those of the daemon. Instead of a long path, a
   * directory above it.
   * @type {string | undefined}
   */
  barrier;
  #uid = process.getuid?.() ?? 0;
  #excluded;
  /** @type {Set<string>} */
  #hardLinks = new Set();

  /** @param {ReadonlySet<string>} [excluded] Paths (latin1) relative to a measured directory to exclude */
  constructor(excluded = new Set()) {
    this.#excluded = excluded;
  }

  /**
   * Walks a directory without following symlinks. A directory that cannot be read counts with its own size only.
   * @param {number} start
   * @returns {Generator<undefined, void, void>}
   */
  *directory(start) {
    using stack = new DirectoryStack(start);
    this.#add(fstatSync(start));
    // The daemon owns directories from the top of an app on, without a gap.
    const isFixed = stack.stats.uid === 0;
    const levels = [{ path: "", isFixed, subdirectories: yield* this.#countAll(stack, "", isFixed) }];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const name = level.subdirectories.pop();
      if (name === undefined) {
        levels.pop();
        if (levels.length > 0) stack.leave();
      } else if (this.#tryEnter(stack, name)) {
        const path = `${level.path}${name}/`;
        const isBelowFixed = level.isFixed && stack.stats.uid === 0;
        const subdirectories = yield* this.#countAll(stack, path, isBelowFixed);
        levels.push({ path, isFixed: isBelowFixed, subdirectories });
      }
    }
  }

  /**
   * Counts one entry.
   * @param {number} parent
   * @param {string} name
   * @param {(stats: Stats) => void} [check]
   * @returns {boolean} whether it is a directory
   */
  count(parent, name, check) {
    try {
      const path = at(parent, name);
      const stats = lstatSync(path);
      check?.(stats);
      if (stats.isDirectory()) {
        this.#add(stats);
        return true;
      }
      if (stats.nlink > 1) {
        // Inode numbers may be above 2^53.
        const { dev, ino } = lstatSync(path, { bigint: true });
        const link = `${dev}:${ino}`;
        if (this.#hardLinks.has(link)) {
          this.entries += 1;
          return false;
        }
        this.#hardLinks.add(link);
      }
      this.#add(stats);
    } catch (error) {
      this.#tolerate(error, "ENOENT");
    }
    return false;
  }

  /**
   * @param {unknown} error
   * @param {string[]} harmless codes that mean that the entry has disappeared
   */
  #tolerate(error, ...harmless) {
    if (hasCode(error, "EACCES")) this.isComplete = false;
    else if (!hasCode(error, ...harmless)) throw error;
  }

  /** @param {Stats} stats */
  #add(stats) {
    this.allocatedBytes += stats.blocks * 512;
    this.entries += 1;
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} path
   * @param {boolean} isFixed whether it belongs to the daemon
   * @returns {Generator<undefined, string[], void>} The subdirectories.
   */
  *#countAll(stack, path, isFixed) {
    const subdirectories = [];
    let isChecked = isFixed;
    // The engine creates mount points as root. The daemon removes these if they contain only directories.
    const isMountPoint = stack.stats.uid === 0 && (stack.stats.mode & 0o022) === 0;
    // In a sticky directory of another user, users can remove only their own entries.
    const isRestricted =
      this.#uid !== 0 && stack.stats.uid !== this.#uid && (stack.stats.mode & 0o1000) !== 0;
    const requireOwn = (/** @type {Stats} */ { uid }) => {
      if (uid !== this.#uid) this.#setBarrier(path);
    };
    try {
      for (const name of namesIn(stack.fd)) {
        // A deep path is costly to build.
        if (this.#excluded.size > 0 && this.#excluded.has(path + name)) continue;
        const isDirectory = this.count(stack.fd, name, isRestricted ? requireOwn : undefined);
        if (isDirectory) subdirectories.push(name);
        if (!isChecked && !(isMountPoint && isDirectory)) {
          this.#checkOwner(stack, path, constants.W_OK | constants.X_OK);
          isChecked = true;
        }
        yield;
      }
    } catch (error) {
      this.#tolerate(error);
      this.#checkOwner(stack, path, constants.R_OK);
    }
    return subdirectories;
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} name
   * @returns {boolean} whether the directory still exists and was entered
   */
  #tryEnter(stack, name) {
    try {
      stack.enter(name);
      return true;
    } catch (error) {
      this.#tolerate(error, "ENOENT", "ENOTDIR", "SYMLINK");
      return false;
    }
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} path
   * @param {number} access
   */
  #checkOwner({ fd, stats }, path, access) {
    if (stats.uid === this.#uid) return;
    try {
      accessSync(at(fd, "."), access);
    } catch {
      this.#setBarrier(path);
    }
  }

  /** @param {string} path */
  #setBarrier(path) {
    this.barrier ??= path.slice(0, path.length > maxShown ? path.lastIndexOf("/", maxShown) : -1);
  }
}
