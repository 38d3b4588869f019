/**
 * What tells later that a file was not touched: its inode and when that was changed last, which nothing but a change sets. Unlike
 * size and time it cannot be brought along by a file that was moved to its place.
 */
import { reopen } from "../directory.mjs";
import { runToEnd } from "../run-command.mjs";
import { readIndex } from "./entry-index.mjs";

/** A change in the same tick of the kernel's clock, or of a file system's, would show in nothing. */
const settledMs = 2_000;

/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */
/** @typedef {import("node:fs").BigIntStats} BigIntStats */

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
    env: {},
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
