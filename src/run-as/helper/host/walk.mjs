/** Visits everything in a directory. Continues after failures and reports each. */
import { lstatSync } from "node:fs";
import { at, namesIn } from "../directory.mjs";
import { hasCode } from "../request-error.mjs";
import { DirectoryStack } from "../directory-stack.mjs";
import { Slices } from "../slices.mjs";
import { spell } from "./spelling.mjs";

/** Failures that are reported individually. */
const maxFailures = 1000;
/** Names of one directory held in memory. */
const namesPerPass = 100_000;

/**
 * @typedef {object} Visitor Actions for each entry, given its directory and name. None may follow a link.
 * @property {(directory: number, name: string) => void} leaf
 * @property {(directory: number, name: string) => void} [enter] called before its content
 * @property {(directory: number, name: string) => void} [leave] called after its content, if all of it succeeded
 * @property {boolean} [empties] whether a directory is empty after its entries have been visited
 */

/** @typedef {{ path: string, code: string, message: string }} Failure */
/** @typedef {{ name: string, names: string[], cut: boolean, failed: number, unread: unknown }} Level */

export class Walk {
  #base;
  #visitor;
  /** @type {Failure[]} */
  failures = [];
  failureCount = 0;
  entries = 0;

  /**
   * @param {string} base the escaped path of the start
   * @param {Visitor} visitor
   */
  constructor(base, visitor) {
    this.#base = base;
    this.#visitor = visitor;
  }

  /**
   * @param {number} parent
   * @param {string} name of a directory
   * @param {(entries: number) => void} report
   * @param {AbortSignal} signal
   */
  async run(parent, name, report, signal) {
    using stack = new DirectoryStack(parent);
    const slices = new Slices(signal);
    /** @type {Level[]} */
    const levels = [];
    const pathOf = (/** @type {string} */ last) =>
      [this.#base, ...[...levels.slice(1).map((level) => level.name), last].map(spell)].join("/");
    const enter = (/** @type {string} */ next) => {
      const path = levels.length === 0 ? this.#base : pathOf(next);
      if (!this.#try(path, () => this.#visitor.enter?.(stack.fd, next))) return;
      const failed = this.failureCount;
      this.#try(path, () => {
        stack.enter(next);
        /** @type {Level} */
        const level = { name: next, names: [], cut: false, failed, unread: undefined };
        // Pushed before it is read: a directory that cannot be read was entered too, and has to be left.
        levels.push(level);
        try {
          Object.assign(level, this.#read(stack));
        } catch (error) {
          if (!this.#visitor.empties) throw error;
          // A user who may not read a directory may remove it if it is empty.
          level.unread = error;
        }
      });
    };
    enter(name);
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      if (slices.isOver) {
        report(this.entries);
        await slices.nextSlice();
      }
      const next = level.names.pop();
      if (next !== undefined) {
        this.entries++;
        const { fd } = stack;
        const path = pathOf(next);
        const isBelow = this.#isDirectory(path, fd, next);
        if (isBelow) enter(next);
        else if (isBelow === false) this.#try(path, () => this.#visitor.leaf(fd, next));
      } else if (level.cut && this.failureCount === level.failed) {
        Object.assign(level, this.#read(stack));
      } else {
        stack.leave();
        levels.pop();
        const path = levels.length === 0 ? this.#base : pathOf(level.name);
        // Failures of its entries were reported already.
        if (this.failureCount === level.failed) {
          this.#try(path, () => this.#leave(stack.fd, level));
        }
      }
    }
  }

  /**
   * @param {string} path
   * @param {number} parent
   * @param {string} name
   * @returns {boolean | undefined} `undefined` if the directory allows only reading names
   */
  #isDirectory(path, parent, name) {
    try {
      return lstatSync(at(parent, name), { throwIfNoEntry: false })?.isDirectory() === true;
    } catch (error) {
      this.fail(path, error);
      return undefined;
    }
  }

  /**
   * @param {number} directory
   * @param {Level} level
   */
  #leave(directory, { name, unread }) {
    try {
      this.#visitor.leave?.(directory, name);
    } catch (error) {
      throw unread ?? error;
    }
  }

  /** @throws Error the first failure */
  throwFirst() {
    const [first] = this.failures;
    if (first) throw Object.assign(new Error(first.message), { code: first.code, subject: first.path });
  }

  /**
   * @param {string} path
   * @param {unknown} error
   */
  fail(path, error) {
    if (!(error instanceof Error) || !("code" in error)) throw error;
    this.failureCount += 1;
    if (this.failures.length === maxFailures) return;
    this.failures.push({ path, code: String(error.code), message: error.message.slice(0, 256) });
  }

  /**
   * @param {string} path
   * @param {() => void} work
   */
  #try(path, work) {
    try {
      work();
      return true;
    } catch (error) {
      // The path back up is lost: continuing would work in another directory.
      if (hasCode(error, "MOVED")) throw error;
      if (!hasCode(error, "ENOENT")) this.fail(path, error);
      return false;
    }
  }

  /** @param {DirectoryStack} stack */
  #read(stack) {
    const names = [];
    for (const name of namesIn(stack.fd)) {
      if (names.push(name) < namesPerPass || !this.#visitor.empties) continue;
      return { names, cut: true };
    }
    return { names, cut: false };
  }
}
