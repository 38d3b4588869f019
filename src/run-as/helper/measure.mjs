/** Measures the space that trees use: allocated bytes, as du(1) counts them. */
import { fstatSync, lstatSync } from "node:fs";
import { at, inDirectory, inParent, namesBelow, namesIn } from "./directory.mjs";
import { hasCode } from "./request-error.mjs";
import { runInSlices } from "./slices.mjs";
import { DirectoryStack } from "./directory-stack.mjs";

/** @typedef {import("./directory.mjs").Place} Place */
/** @typedef {import("node:fs").Stats} Stats */

/**
 * @param {{ root: string, paths: string[] }} args
 * @param {AbortSignal} signal
 * @returns {Promise<{ sizes: number[], isWhole: boolean }>} bytes of each path; a file with several hard links is
 *   counted in the first path that contains it. `isWhole` is false if the user may not read some directory
 */
export async function measure({ root, paths }, signal) {
  const measurement = new Measurement();
  const sizes = [];
  for (const path of paths) {
    const before = measurement.allocatedBytes;
    try {
      await measurePath(measurement, { root, path }, signal);
    } catch (error) {
      if (hasCode(error, "EACCES")) measurement.isWhole = false;
      else if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
    }
    sizes.push(measurement.allocatedBytes - before);
  }
  return { sizes, isWhole: measurement.isWhole };
}

/**
 * @param {Measurement} measurement
 * @param {Place} place
 * @param {AbortSignal} signal
 */
async function measurePath(measurement, place, signal) {
  if (namesBelow(place).length === 0) {
    return inDirectory(place, (fd) => runInSlices(measurement.directory(fd), signal));
  }
  return inParent(place, (parent, name) => {
    if (!lstatSync(at(parent, name)).isDirectory()) {
      measurement.count(parent, name);
      return;
    }
    return inDirectory(place, (fd) => runInSlices(measurement.directory(fd), signal));
  });
}

export class Measurement {
  allocatedBytes = 0;
  entries = 0;
  /** Whether all directories could be read. */
  isWhole = true;
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
    const levels = [{ path: "", subdirectories: yield* this.#countAll(stack, "") }];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const name = level.subdirectories.pop();
      if (name === undefined) {
        levels.pop();
        if (levels.length > 0) stack.leave();
      } else if (this.#tryEnter(stack, name)) {
        const path = this.#excluded.size > 0 ? `${level.path}${name}/` : "";
        levels.push({ path, subdirectories: yield* this.#countAll(stack, path) });
      }
    }
  }

  /**
   * Counts one entry.
   * @param {number} parent
   * @param {string} name
   * @returns {boolean} whether it is a directory
   */
  count(parent, name) {
    try {
      const path = at(parent, name);
      const stats = lstatSync(path);
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
      this.#passOver(error, "ENOENT");
    }
    return false;
  }

  /**
   * @param {unknown} error
   * @param {string[]} harmless codes that mean that the entry has disappeared
   */
  #passOver(error, ...harmless) {
    if (hasCode(error, "EACCES")) this.isWhole = false;
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
   * @returns {Generator<undefined, string[], void>} The subdirectories.
   */
  *#countAll(stack, path) {
    const subdirectories = [];
    try {
      for (const name of namesIn(stack.fd)) {
        if (this.#excluded.has(path + name)) continue;
        if (this.count(stack.fd, name)) subdirectories.push(name);
        yield;
      }
    } catch (error) {
      this.#passOver(error);
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
      this.#passOver(error, "ENOENT", "ENOTDIR", "SYMLINK");
      return false;
    }
  }
}
