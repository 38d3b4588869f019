/** Removal of whole trees: any depth, any number of files, directories without permission bits. */
import { chmodSync, lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { at, inDirectory, inParent, namesBelow, namesIn, reopen } from "./directory.mjs";
import { hasCode } from "./request-error.mjs";
import { runInSlices } from "./slices.mjs";
import { Trail } from "./trail.mjs";

/** Passes over one directory before giving up on someone who keeps filling it. */
const maxPasses = 100;
/** Subdirectories remembered in one pass. */
const subdirectoriesPerPass = 4096;

/** @typedef {import("./directory.mjs").Place} Place */

/**
 * @param {Place} place
 * @param {AbortSignal} signal
 * @returns {Promise<{ freedBytes: number }>}
 */
export async function removeTree(place, signal) {
  const removal = new Removal();
  try {
    if (namesBelow(place).length === 0) {
      await inDirectory(place, (fd) => runInSlices(removal.empty(fd), signal));
    } else {
      await inParent(place, (parent, name) => runInSlices(removal.remove(parent, name), signal));
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
    using trail = new Trail(parent);
    yield* this.#removeDirectories(trail, [name]);
  }

  /**
   * @param {number} fd
   * @returns {Generator<undefined, void, void>}
   */
  *empty(fd) {
    using trail = new Trail(fd);
    for (;;) {
      const { subdirectories } = yield* this.#unlinkAll(trail);
      if (subdirectories.length === 0) return;
      yield* this.#removeDirectories(trail, subdirectories);
    }
  }

  /**
   * Removes directories of the one at the end of the trail. A loop and not a recursion: a hostile tree is deeper than any stack.
   * @param {Trail} trail
   * @param {string[]} names
   * @returns {Generator<undefined, void, void>}
   */
  *#removeDirectories(trail, names) {
    const levels = [{ name: "", subdirectories: names, cut: false, passes: 0 }];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const next = level.subdirectories.pop();
      if (next !== undefined) {
        if (this.#tryEnter(trail, next)) {
          levels.push({ name: next, ...(yield* this.#unlinkAll(trail)), passes: 1 });
        }
        continue;
      }
      if (levels.length === 1) return;
      trail.leave();
      if (
        this.#rmdir(trail.fd, level.name, level.cut || level.passes < maxPasses) ||
        !this.#tryEnter(trail, level.name)
      ) {
        levels.pop();
      } else {
        if (!level.cut) level.passes += 1;
        Object.assign(level, yield* this.#unlinkAll(trail));
      }
      yield;
    }
  }

  /**
   * @param {Trail} trail
   * @param {string} name
   * @returns {boolean} False when it is no directory any more: the next pass over its parent sees what it is.
   */
  #tryEnter(trail, name) {
    try {
      trail.enter(name);
      return true;
    } catch (error) {
      if (hasCode(error, "ENOENT", "ENOTDIR", "SYMLINK")) return false;
      throw error;
    }
  }

  /**
   * Unlinks everything but directories, which it returns: all of them, or a portion where the pass was cut.
   * @param {Trail} trail
   * @returns {Generator<undefined, { subdirectories: string[], cut: boolean }, void>}
   */
  *#unlinkAll(trail) {
    const { fd, stats } = trail;
    // Their own directories lose any bits that keep their owner out.
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
   * @returns {boolean} Whether it is gone now; false for a directory.
   */
  #unlink(parent, name) {
    const path = at(parent, name);
    try {
      const stats = lstatSync(path);
      if (stats.isDirectory()) return false;
      unlinkSync(path);
      // Space comes free with the last link.
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
   * @param {boolean} again Whether one that is not empty may be passed over once more.
   * @returns {boolean} Whether it is gone; false when it is not empty.
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
