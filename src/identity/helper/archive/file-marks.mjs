/**
 * What tells later that a file was not touched: its inode and when that was changed last, which nothing but a change sets. Unlike
 * size and time it cannot be brought along by a file that was moved to its place.
 */
import { lstatSync } from "node:fs";
import { at, namesIn, reopen } from "../directory.mjs";
import { hasCode, RequestError } from "../request-error.mjs";
import { runToEnd } from "../run-command.mjs";
import { Trail } from "../trail.mjs";
import { readIndex } from "./entry-index.mjs";

/** A change in the same tick of the kernel's clock, or of a file system's, would show in nothing. */
const settledMs = 2_000;

/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */
/** @typedef {import("node:fs").BigIntStats} BigIntStats */

/**
 * Everything beneath an open directory, a directory before what is in it; what goes away meanwhile, or may not be looked into, is
 * passed over.
 * @param {number} fd
 * @param {string} path What the directory is called; one character per byte.
 * @param {(path: string) => boolean} isExcluded
 * @param {(path: string, stat: BigIntStats) => void} take
 * @returns {Generator<undefined, void, void>}
 */
export function* walkFiles(fd, path, isExcluded, take) {
  const trail = new Trail(fd);
  try {
    const levels = [{ path, names: readNames(fd) }];
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const name = level.names.pop();
      if (name === undefined) {
        levels.pop();
        if (levels.length > 0) trail.leave();
        continue;
      }
      const below = `${level.path}/${name}`;
      if (isExcluded(below)) continue;
      const stat = tryTo(() => lstatSync(at(trail.fd, name), { bigint: true }));
      if (stat === undefined) continue;
      take(below, stat);
      yield;
      const names = stat.isDirectory() ? tryTo(() => namesBelow(trail, name)) : undefined;
      if (names !== undefined) levels.push({ path: below, names });
    }
  } finally {
    trail.close();
  }
}

/**
 * Enters a directory.
 * @param {Trail} trail
 * @param {string} name
 */
function namesBelow(trail, name) {
  trail.enter(name);
  return readNames(trail.fd);
}

/** @param {number} fd */
function readNames(fd) {
  return tryTo(() => [...namesIn(fd)]) ?? [];
}

/**
 * @template T
 * @param {() => T} work
 * @returns {T | undefined}
 */
function tryTo(work) {
  try {
    return work();
  } catch (error) {
    if (hasCode(error, "ENOENT", "EACCES", "ENOTDIR") || error instanceof RequestError) return undefined;
    throw error;
  }
}

/**
 * Writes the file system of an open directory to its disk. Whoever maps a file into memory changes its time with the first change
 * of a page alone, until that is written; from then on with the next one, too.
 * @param {number} fd
 * @param {string} runId
 * @param {AbortSignal} signal
 * @returns {Promise<number>} What was changed before, in milliseconds since 1970, shows each change from now on; 0: nothing does.
 */
export async function settle(fd, runId, signal) {
  const settled = Date.now() - settledMs;
  const program = {
    argv: ["sync", "-f", "."],
    cwd: reopen(fd),
    env: { LC_ALL: "C", PATH: process.env["PATH"] ?? "" },
    umask: 0o077,
    runId,
  };
  const unread = () => undefined;
  const { exitCode } = await runToEnd(program, { stdout: unread, stderr: unread }, signal);
  return exitCode === 0 ? settled : 0;
}

/**
 * Empty for what has none: what is no plain file, or has several names.
 * @param {BigIntStats} stat
 */
export function markOf(stat) {
  if (!stat.isFile() || stat.nlink !== 1n) return "";
  return `${stat.dev}-${stat.ino}-${stat.ctimeNs}-${stat.size}`;
}

/**
 * The files of an archive that have a mark, by their paths.
 * @param {Buffer} index
 * @returns {Promise<Map<string, IndexedEntry>>}
 */
export async function markedFiles(index) {
  /** @type {Map<string, IndexedEntry>} */
  const marked = new Map();
  for await (const entry of readIndex(index)) if (entry.mark) marked.set(entry.path, entry);
  return marked;
}
