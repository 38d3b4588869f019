/** Yields all entries of a tree by descriptors: no link is followed, and nothing is opened that could block. */
import { fstatSync, lstatSync } from "node:fs";
import { at, ownedFd, namesIn, openForReading, openPath } from "../directory.mjs";
import { hasCode } from "../request-error.mjs";
import { DirectoryStack } from "../directory-stack.mjs";
import { Slices } from "../slices.mjs";

/** @typedef {import("node:fs").BigIntStats} BigIntStats */

/**
 * @typedef {object} TreeEntry
 * @property {number} parent descriptor of its directory, valid until the next entry is requested
 * @property {string} name
 * @property {string[]} path the names from the start of the walk, beginning with the start's own name
 * @property {BigIntStats} stats
 * @property {boolean} isLeft whether this is the second visit of a directory, after its content
 */

/**
 * @param {number} parent
 * @param {string} name
 * @param {AbortSignal} signal
 * @param {{ stays?: boolean, admits?: (parent: number, name: string) => boolean, fail?: (path: string[], error:
 *   unknown) => void }} [options] `stays`: stay on the file system of the start. Entries rejected by `admits` are
 *   skipped with their content. `fail` receives errors of entries, which are then skipped; without it an error ends the
 *   walk
 * @returns {AsyncGenerator<TreeEntry, void, void>}
 */
export async function* treeEntries(parent, name, signal, { stays = false, admits, fail } = {}) {
  const start = lstatSync(at(parent, name), { bigint: true });
  yield { parent, name, path: [name], stats: start, isLeft: false };
  if (!start.isDirectory()) return;
  using stack = new DirectoryStack(parent);
  const slices = new Slices(signal);
  /** @type {{ names: string[], stats: BigIntStats }[]} */
  const levels = [];
  /** @type {string[]} */
  const path = [];
  const enter = (/** @type {string} */ next) => {
    stack.enter(next);
    path.push(next);
    levels.push({ names: [], stats: fstatSync(stack.fd, { bigint: true }) });
    const level = levels.at(-1);
    // Pages and archives are easier to compare if sorted.
    if (level) level.names = [...namesIn(stack.fd)].sort().reverse();
  };
  const attempt = (/** @type {string[]} */ where, /** @type {() => void} */ work) => {
    try {
      work();
    } catch (error) {
      if (hasCode(error, "ENOENT")) return;
      if (!fail || hasCode(error, "MOVED")) throw error;
      fail(where, error);
    }
  };
  enter(name);
  for (let level = levels.at(-1); level; level = levels.at(-1)) {
    if (slices.isOver) await slices.nextSlice();
    const next = level.names.pop();
    if (next === undefined) {
      const whole = path.slice();
      levels.pop();
      path.pop();
      stack.leave();
      yield {
        parent: stack.fd,
        name: whole.at(-1) ?? name,
        path: whole,
        stats: level.stats,
        isLeft: true,
      };
      continue;
    }
    if (admits && !admits(stack.fd, next)) continue;
    const where = [...path, next];
    /** @type {BigIntStats | undefined} */
    let stats;
    attempt(where, () => (stats = lstatSync(at(stack.fd, next), { bigint: true })));
    if (!stats || (stays && stats.dev !== start.dev)) continue;
    yield { parent: stack.fd, name: next, path: where, stats, isLeft: false };
    if (stats.isDirectory()) attempt(where, () => enter(next));
  }
}

/**
 * Opens a file for reading.
 * @param {TreeEntry} entry
 * @returns {Promise<import("node:fs/promises").FileHandle | undefined>} undefined if the name now refers to another
 *   file
 */
export async function openEntry({ parent, name, stats }) {
  using entry = ownedFd(openPath(parent, name));
  const now = fstatSync(entry.fd, { bigint: true });
  if (!now.isFile() || now.ino !== stats.ino || now.dev !== stats.dev) return undefined;
  return await openForReading(entry.fd);
}
