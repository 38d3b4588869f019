/**
 * Rejects entries that must not be unpacked: paths outside of their trees, paths through a link, duplicates, and files
 * that the owner could not have created.
 */
import { damaged } from "./tar-reader.mjs";

/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */

/** Paths of entries are kept in memory: this limits the memory that an archive can use. */
const maxEntries = 5_000_000;

export class EntryGuard {
  #trees;
  #uid;
  #isRoot;
  /** @type {Map<string, string>} */
  #types = new Map();

  /**
   * @param {string[]} trees the paths below which entries must be, as latin1
   * @param {number} uid the owner of the files
   */
  constructor(trees, uid) {
    this.#trees = trees;
    this.#uid = uid;
    // Root unpacks an archive of root.
    this.#isRoot = process.geteuid?.() === 0 && uid === 0;
  }

  /**
   * @param {IndexedEntry} entry
   * @returns {number} the number of its tree
   * @throws RequestError `DAMAGED`
   */
  admit(entry) {
    const { path, type, target } = entry;
    const shown = JSON.stringify(path.slice(0, 256));
    const names = path.split("/");
    if (
      path === "" ||
      path.includes("\0") ||
      names.some((name) => name === "" || name === "." || name === "..")
    ) {
      throw damaged(`has an entry ${shown} outside of it`);
    }
    const tree = this.#trees.findIndex((each) => path === each || path.startsWith(`${each}/`));
    if (tree < 0) throw damaged(`has an entry ${shown} that is in none of its trees`);
    if (this.#types.has(path)) throw damaged(`has the entry ${shown} twice`);
    if (this.#types.size >= maxEntries) throw damaged(`has more than ${maxEntries} entries`);
    if (path !== this.#trees[tree] && this.#types.get(names.slice(0, -1).join("/")) !== "directory") {
      throw damaged(`has an entry ${shown} that lies in no directory of it`);
    }
    if (path === this.#trees[tree] && type !== "directory")
      throw damaged(`has a tree ${shown} that is not a directory`);
    if (type === "hardlink") this.#admitLink(shown, target, tree);
    if (type === "symlink" && (target === "" || target.includes("\0")))
      throw damaged(`has a link ${shown} without a target`);
    if (type === "device" && !this.#isRoot) throw damaged(`has a device ${shown}`);
    if (type === "file" && (entry.mode & 0o6000) !== 0 && entry.uid !== this.#uid && !this.#isRoot) {
      throw damaged(`has a file ${shown} with a setuid or setgid bit`);
    }
    this.#types.set(path, type);
    return tree;
  }

  /**
   * Whether this path was admitted.
   * @param {string} path
   */
  has(path) {
    return this.#types.has(path);
  }

  /**
   * @param {string} shown
   * @param {string} target
   * @param {number} tree
   */
  #admitLink(shown, target, tree) {
    const root = this.#trees[tree] ?? "";
    const isFile = ["file", "symlink", "fifo", "device"].includes(this.#types.get(target) ?? "");
    if (!isFile || !target.startsWith(`${root}/`))
      throw damaged(`has a hard link ${shown} to an entry that is not in it`);
  }
}
