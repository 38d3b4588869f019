/**
 * Marks of files that show later whether a file has changed: its inode and ctime, which only a change sets. Unlike size
 * and mtime, a file that was moved there cannot bring it along.
 */
import { reopen } from "../directory.mjs";
import { runToEnd } from "../run-command.mjs";
import { readIndex } from "./entry-index.mjs";

/** A change in the same tick of the kernel's or the file system's clock would not be visible. */
const settledMs = 2_000;

/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */
/** @typedef {import("node:fs").BigIntStats} BigIntStats */

/**
 * Syncs the file system of an open directory to disk. A memory-mapped file changes its time only with the first change
 * of a page, until the page is written; after that the next change sets it again.
 * @param {number} fd
 * @param {string} runId
 * @param {AbortSignal} signal
 * @returns {Promise<number>} a time in milliseconds since 1970: files changed before it will show each later change; 0:
 *   none will
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
 * Returns the mark of a file; empty if it is not a regular file or has several links.
 * @param {BigIntStats} stat
 */
export function markOf(stat) {
  if (!stat.isFile() || stat.nlink !== 1n) return "";
  return `${stat.dev}-${stat.ino}-${stat.ctimeNs}-${stat.size}`;
}

/**
 * Returns the files of an archive that have a mark, by path.
 * @param {Buffer} index
 * @returns {Promise<Map<string, IndexedEntry>>}
 */
export async function markedFiles(index) {
  /** @type {Map<string, IndexedEntry>} */
  const marked = new Map();
  for await (const entry of readIndex(index)) if (entry.mark) marked.set(entry.path, entry);
  return marked;
}
