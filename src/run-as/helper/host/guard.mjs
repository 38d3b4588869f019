/**
 * Daemon-owned files, which a caller with a token may not touch even if they work as root. Identified by device and
 * inode, so that another path, such as a bind mount, does not bypass the guard.
 */
import { fstatSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { RequestError } from "../request-error.mjs";

/**
 * @typedef {object} Guarded
 * @property {string[]} files absolute paths
 * @property {{ path: string, except: string[] }[]} directories with everything in them, except these names
 */

export class Guard {
  /** @type {Set<string>} */
  #files = new Set();
  /** @type {Map<string, readonly string[]>} */
  #directories = new Map();
  /** The parent directories of all guarded paths. @type {Set<string>} */
  #above = new Set();

  /** @param {Guarded | undefined} guarded default: nothing */
  constructor(guarded) {
    for (const path of guarded?.files ?? []) {
      this.#files.add(keyOfPath(path));
      this.#addAbove(path);
    }
    for (const { path, except } of guarded?.directories ?? []) {
      this.#directories.set(keyOfPath(path), except);
      this.#above.add(keyOfPath(path));
      this.#addAbove(path);
    }
  }

  get #isOpen() {
    return this.#above.size === 0;
  }

  /**
   * Checks that a name in a directory may be used.
   * @param {number} directory
   * @param {string} name
   * @throws RequestError `GUARDED`
   */
  admitName(directory, name) {
    if (this.#isOpen) return;
    const except = this.#directories.get(keyOf(fstatSync(directory)));
    if (except && name !== "." && !except.includes(name)) throw refusal();
  }

  /**
   * @param {import("node:fs").Stats | import("node:fs").BigIntStats} stats
   * @throws RequestError `GUARDED`
   */
  admit(stats) {
    if (!this.#isOpen && this.#files.has(keyOf(stats))) throw refusal();
  }

  /**
   * Checks work on a whole tree, or on its name.
   * @param {import("node:fs").Stats | import("node:fs").BigIntStats} stats
   * @throws RequestError `GUARDED`
   */
  admitWhole(stats) {
    this.admit(stats);
    if (!this.#isOpen && this.#above.has(keyOf(stats))) throw refusal();
  }

  /** @param {string} path */
  #addAbove(path) {
    for (let above = dirname(path); ; above = dirname(above)) {
      this.#above.add(keyOfPath(above));
      if (above === "/") return;
    }
  }
}

function refusal() {
  return new RequestError("GUARDED", "belongs to svc itself");
}

/** @param {import("node:fs").Stats | import("node:fs").BigIntStats} stats */
function keyOf({ dev, ino }) {
  return `${dev}:${ino}`;
}

/** @param {string} path */
function keyOfPath(path) {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats ? keyOf(stats) : "";
}
