/** Reads the end of a file, and follows what is written to it. */
import { setTimeout as sleep } from "node:timers/promises";
import { openForReading } from "../directory.mjs";
import { findLines } from "../read-tail.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { withParent, opened } from "./host-path.mjs";

const blockBytes = 256 << 10;
/** How far back the last lines are searched. */
const maxTailBytes = 4 << 20;
/** Milliseconds between two polls. */
const pollMs = 200;

/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("node:fs/promises").FileHandle} FileHandle */

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath & { lines: number, follow: boolean }} args
 * @param {(bytes: Buffer) => Promise<void>} output
 * @param {AbortSignal} signal
 */
export async function tailFile(syscalls, { lines, follow, ...target }, output, signal) {
  let file = await openRegular(syscalls, target);
  try {
    let position = await startOfLines(file, lines, signal);
    for (;;) {
      position = await sendFrom(file, position, output, signal);
      if (!follow) return;
      await sleep(pollMs, undefined, { signal });
      const { size } = await file.stat();
      if (size < position) position = 0;
      if (size > position) continue;
      const next = await successor(syscalls, target, file);
      if (!next) continue;
      // Data written to the old file until it was replaced comes first.
      await sendFrom(file, position, output, signal);
      await file.close();
      file = next;
      position = 0;
    }
  } finally {
    await file.close();
  }
}

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath} target
 * @returns {Promise<FileHandle>}
 */
async function openRegular(syscalls, target) {
  return withParent(syscalls, target, { follow: true }, (found) =>
    opened(found, async (fd, stats) => {
      if (stats.isDirectory()) throw Object.assign(new Error("EISDIR"), { code: "EISDIR" });
      if (!stats.isFile()) throw new RequestError("WRONG_TYPE", "is not a regular file");
      return openForReading(fd);
    }),
  );
}

/**
 * Opens the file that now has this name, if it is a different one.
 * @param {Syscalls} syscalls
 * @param {GuardedPath} target
 * @param {FileHandle} file
 */
async function successor(syscalls, target, file) {
  const { dev, ino } = await file.stat();
  /** @type {FileHandle | undefined} */
  let next;
  try {
    next = await openRegular(syscalls, target);
  } catch (error) {
    // The name is missing between two files, or no longer accessible: keep the open file.
    if (!(error instanceof Error) || !("code" in error) || hasCode(error, "GUARDED")) throw error;
    return undefined;
  }
  const now = await next.stat();
  if (now.ino !== ino || now.dev !== dev) return next;
  await next.close();
  return undefined;
}

/**
 * @param {FileHandle} file
 * @param {number} position
 * @param {(bytes: Buffer) => Promise<void>} output
 * @param {AbortSignal} signal
 * @returns {Promise<number>} position of the end
 */
async function sendFrom(file, position, output, signal) {
  for (;;) {
    signal.throwIfAborted();
    const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(blockBytes), 0, blockBytes, position);
    if (bytesRead === 0) return position;
    await output(buffer.subarray(0, bytesRead));
    position += bytesRead;
  }
}

/**
 * @param {FileHandle} file
 * @param {number} lines
 * @param {AbortSignal} signal
 */
async function startOfLines(file, lines, signal) {
  const { size } = await file.stat();
  if (lines === 0) return size;
  const bounds = { end: size - 1, lines, least: Math.max(0, size - maxTailBytes) };
  return (await findLines(file, bounds, signal)).start;
}
