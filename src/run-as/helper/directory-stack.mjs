/** The path down into a tree, as descriptors: any depth with a limited number of descriptors. */
import { closeSync, fstatSync } from "node:fs";
import { openSubdirectory } from "./directory.mjs";
import { RequestError } from "./request-error.mjs";

/** Levels that keep their descriptor. Those above are reopened through `..`, and must still be the same directory. */
const maxOpenLevels = 64;

/** @typedef {import("node:fs").Stats} Stats */

export class DirectoryStack {
  /** @type {{ fd: number | undefined, stats: Stats }[]} */
  #levels = [];

  /** @param {number} fd the start; the caller closes it */
  constructor(fd) {
    this.#levels.push({ fd, stats: fstatSync(fd) });
  }

  get #last() {
    const last = this.#levels.at(-1);
    if (last?.fd === undefined) throw new RequestError("MOVED", "was moved while it was read");
    return { fd: last.fd, stats: last.stats };
  }

  /** The descriptor of the current directory. */
  get fd() {
    return this.#last.fd;
  }

  /** The stats of the current directory when it was entered. */
  get stats() {
    return this.#last.stats;
  }

  /** @param {string} name */
  enter(name) {
    const fd = openSubdirectory(this.fd, name);
    this.#levels.push({ fd, stats: fstatSync(fd) });
    const far = this.#levels[this.#levels.length - maxOpenLevels];
    // The caller owns the start's descriptor.
    if (far?.fd !== undefined && far !== this.#levels[0]) {
      closeSync(far.fd);
      far.fd = undefined;
    }
  }

  leave() {
    const { fd } = this.#last;
    const above = this.#levels.at(-2);
    if (above === undefined) throw new RangeError("the start cannot be left");
    try {
      if (above.fd === undefined) {
        const parent = openSubdirectory(fd, "..");
        const { dev, ino } = fstatSync(parent);
        if (dev !== above.stats.dev || ino !== above.stats.ino) {
          closeSync(parent);
          throw new RequestError("MOVED", "was moved while it was read");
        }
        above.fd = parent;
      }
    } finally {
      this.#levels.pop();
      closeSync(fd);
    }
  }

  /** Closes all descriptors except the start. */
  [Symbol.dispose]() {
    for (const { fd } of this.#levels.splice(1)) if (fd !== undefined) closeSync(fd);
  }
}
