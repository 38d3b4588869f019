/** A small JSON file that is replaced atomically: a crash leaves either the old or the new content. */
import { close, fsync, open, rename, writeFile } from "node:fs";
import { promisify } from "node:util";

const [openFile, writeWhole, syncFile, closeFile, renameFile] = [
  promisify(open),
  promisify(writeFile),
  promisify(fsync),
  promisify(close),
  promisify(rename),
];

/** @template T */
export class StateFile {
  #path;
  #directory;
  /** @type {T | undefined} */
  #next;
  /** @type {Promise<void> | undefined} */
  #writing;

  /**
   * @param {string} directory
   * @param {string} name
   */
  constructor(directory, name) {
    this.#directory = directory;
    this.#path = `${directory}/${name}`;
  }

  /**
   * Writes the latest value; values that arrive during a write replace each other.
   * @param {T} value
   * @returns {Promise<void>} resolves when this value, or a later one, is on disk; rejects with the file system's
   *   error
   */
  save(value) {
    this.#next = value;
    this.#writing ??= this.#drain().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #drain() {
    while (this.#next !== undefined) {
      const value = this.#next;
      this.#next = undefined;
      const temporary = `${this.#path}.tmp`;
      const file = await openFile(temporary, "w", 0o600);
      try {
        await writeWhole(file, JSON.stringify(value));
        await syncFile(file);
      } finally {
        await closeFile(file);
      }
      await renameFile(temporary, this.#path);
      const directory = await openFile(this.#directory, "r");
      try {
        await syncFile(directory);
      } finally {
        await closeFile(directory);
      }
    }
  }
}
