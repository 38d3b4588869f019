/** Removes whole trees of any depth and size, including directories without permission bits. */
import { chmodSync, lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { at, inDirectory, inParent, namesBelow, namesIn, reopen } from "./directory.mjs";
import { hasCode } from "./request-error.mjs";
import { runInSlices } from "./slices.mjs";
import { DirectoryStack } from "./directory-stack.mjs";

/** Passes over one directory before giving up: another process may keep adding entries. */
const maxPasses = 100;
/** Subdirectories stored per pass. */
const subdirectoriesPerPass = 4096;

/** @typedef {import("./directory.mjs").RootedPath} RootedPath */

/**
 * @param {RootedPath} target
 * @param {AbortSignal} signal
 * @returns {Promise<{ freedBytes: number }>}
 */
export async function removeTree(target, signal) {
  const removal = new Removal();
  try {
    if (namesBelow(target).length === 0) {
      await inDirectory(target, (fd) => runInSlices(removal.empty(fd), signal));
    } else {
      await inParent(target, (parent, name) => runInSlices(removal.remove(parent, name), signal));
    }
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
  return { freedBytes: removal.freedBytes };
}

class Removal {
  freedBytes = 0;

  /**
   * @param {number} parent
   * @param {string} name
   * @returns {Generator<undefined, void, void>}
   */
  *remove(parent, name) {
    if (this.#unlink(parent, name)) return;
    using stack = new DirectoryStack(parent);
    yield* this.#removeDirectories(stack, [name]);
  }

  /**
   * @param {number} fd
   * @returns {Generator<undefined, void, void>}
   */
  *empty(fd) {
    using stack = new DirectoryStack(fd);
    for (let passes = 1; ;) {
      const { subdirectories, cut } = yield* this.#unlinkAll(stack);
      if (subdirectories.length === 0) return;
      if (!cut && passes++ > maxPasses)
        throw Object.assign(new Error("directory not empty"), { code: "ENOTEMPTY" });
      yield* this.#removeDirectories(stack, subdirectories);
    }
  }

  /**
   * Removes subdirectories of the current directory. A loop instead of recursion, because a hostile tree can be deeper
   * than the stack.
   * @param {DirectoryStack} stack
   * @param {string[]} names
   * @returns {Generator<undefined, void, void>}
   */
  *#removeDirectories(stack, names) {
    const levels = [{ name: "", subdirectories: names, cut: false, passes: 0 }];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const next = level.subdirectories.pop();
      if (next !== undefined) {
        if (this.#tryEnter(stack, next)) {
          levels.push({ name: next, ...(yield* this.#unlinkAll(stack)), passes: 1 });
        }
        continue;
      }
      if (levels.length === 1) return;
      stack.leave();
      if (
        this.#rmdir(stack.fd, level.name, level.cut || level.passes < maxPasses) ||
        !this.#tryEnter(stack, level.name)
      ) {
        levels.pop();
      } else {
        if (!level.cut) level.passes += 1;
        Object.assign(level, yield* this.#unlinkAll(stack));
      }
      yield;
    }
  }

  /**
   * @param {DirectoryStack} stack
   * @param {string} name
   * @returns {boolean} false if it is no longer a directory; the next pass over its parent handles it
   */
  #tryEnter(stack, name) {
    try {
      stack.enter(name);
      return true;
    } catch (error) {
      if (hasCode(error, "ENOENT", "ENOTDIR", "SYMLINK")) return false;
      throw error;
    }
  }

  /**
   * Unlinks everything except directories, which it returns: all of them, or a part if the pass was cut.
   * @param {DirectoryStack} stack
   * @returns {Generator<undefined, { subdirectories: string[], cut: boolean }, void>}
   */
  *#unlinkAll(stack) {
    const { fd, stats } = stack;
    // Directories of this user get the bits that their owner needs.
    if ((stats.mode & 0o700) !== 0o700 && stats.uid === process.geteuid?.()) {
      chmodSync(reopen(fd), (stats.mode & 0o7777) | 0o700);
    }
    const subdirectories = [];
    for (const name of namesIn(fd)) {
      if (!this.#unlink(fd, name)) subdirectories.push(name);
      if (subdirectories.length === subdirectoriesPerPass) return { subdirectories, cut: true };
      yield;
    }
    return { subdirectories, cut: false };
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @returns {boolean} whether it is gone; false for a directory
   */
  #unlink(parent, name) {
    const path = at(parent, name);
    try {
      const stats = lstatSync(path);
      if (stats.isDirectory()) return false;
      unlinkSync(path);
      // Space is freed with the last link.
      if (stats.nlink === 1) this.freedBytes += stats.blocks * 512;
      return true;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return true;
      throw error;
    }
  }

  /**
   * @param {number} parent
   * @param {string} name
   * @param {boolean} again whether a directory that is not empty may get another pass
   * @returns {boolean} whether it is gone; false if it is not empty
   */
  #rmdir(parent, name, again) {
    const path = at(parent, name);
    try {
      const { blocks } = lstatSync(path);
      rmdirSync(path);
      this.freedBytes += blocks * 512;
      return true;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return true;
      if (hasCode(error, "ENOTEMPTY", "EEXIST") && again) return false;
      throw error;
    }
  }
}
