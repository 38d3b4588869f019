/** Operations on single files and directories: stat, list, read, write, create, rename. */
import { randomBytes } from "node:crypto";
import { fstatSync, lstatSync, renameSync } from "node:fs";
import {
  at,
  ownedFd,
  inDirectory,
  inParent,
  namesBelow,
  namesIn,
  openForReading,
  openPath,
  syncDirectory,
} from "./directory.mjs";
import { openUnnamed, unlinkIfThere } from "./host/unnamed-file.mjs";
import { RequestError, hasCode } from "./request-error.mjs";

/** @typedef {import("./directory.mjs").RootedPath} RootedPath */
/** @typedef {import("node:fs").Stats} Stats */

/** @param {Stats} stats */
function typeOf(stats) {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : "other";
}

/** @param {RootedPath} target */
export async function stat(target) {
  try {
    const isRoot = namesBelow(target).length === 0;
    const stats = isRoot
      ? await inDirectory(target, (fd) => fstatSync(fd))
      : await inParent(target, (parent, name) => lstatSync(at(parent, name)));
    return {
      type: typeOf(stats),
      sizeBytes: stats.size,
      mode: stats.mode & 0o7777,
      uid: stats.uid,
      gid: stats.gid,
      modifiedMs: stats.mtimeMs,
    };
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
    throw error;
  }
}

/**
 * @param {RootedPath & { maxEntries: number }} args
 * @returns {Promise<{ name: string, type: string }[]>}
 */
export async function list({ maxEntries, ...target }) {
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  return inDirectory(target, (fd) => {
    const entries = [];
    for (const bytes of namesIn(fd)) {
      try {
        entries.push({
          name: utf8.decode(Buffer.from(bytes, "latin1")),
          type: typeOf(lstatSync(at(fd, bytes))),
        });
      } catch (error) {
        // A name that no request can contain, or an entry that has disappeared.
        if (!(error instanceof TypeError) && !hasCode(error, "ENOENT")) throw error;
      }
      if (entries.length > maxEntries) throw new RequestError("LIMIT", `has more than ${maxEntries} entries`);
    }
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  });
}

/**
 * Opens a regular file for reading. Its type is checked before it is opened, so that a FIFO does not block and a device
 * is not activated. It cannot be swapped in between.
 * @param {RootedPath} target
 */
export async function openRegular(target) {
  return inParent(target, async (parent, name) => {
    using found = ownedFd(openPath(parent, name));
    const stats = fstatSync(found.fd);
    if (stats.isSymbolicLink()) throw new RequestError("SYMLINK", "symbolic links are not followed");
    if (!stats.isFile()) throw new RequestError("WRONG_TYPE", "is not a regular file");
    return await openForReading(found.fd);
  });
}

/**
 * @param {RootedPath & { maxBytes: number }} args
 * @param {AbortSignal} signal
 * @returns {Promise<Buffer>}
 */
export async function readFile({ maxBytes, ...target }, signal) {
  await using file = await openRegular(target);
  const tooLarge = () => new RequestError("LIMIT", `is larger than ${maxBytes} bytes`);
  const { size } = await file.stat();
  if (size > maxBytes) throw tooLarge();
  // A file may grow while it is read, and files in /proc report size 0.
  let buffer = Buffer.allocUnsafe(Math.min(maxBytes, Math.max(size, 4096)) + 1);
  let length = 0;
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(buffer, length, buffer.length - length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
    if (length > maxBytes) throw tooLarge();
    if (length === buffer.length) {
      const larger = Buffer.allocUnsafe(Math.min(maxBytes + 1, buffer.length * 2));
      buffer.copy(larger, 0, 0, length);
      buffer = larger;
    }
  }
}

/**
 * @param {import("./host/syscalls.mjs").Syscalls} syscalls
 * @param {RootedPath & { mode?: number }} target
 * @param {Buffer} data
 */
export async function writeFile(syscalls, { mode = 0o600, ...target }, data) {
  await inParent(target, async (parent, name) => {
    const temporary = `.svc-${randomBytes(8).toString("hex")}.tmp`;
    await using file = await openUnnamed(syscalls, parent, temporary);
    const { handle } = file;
    try {
      await handle.writeFile(data);
      await handle.chmod(mode);
      await handle.sync();
      if (!file.isNamed) syscalls.link(handle.fd, parent, temporary);
      file.isNamed = true;
      renameSync(at(parent, temporary), at(parent, name));
    } catch (error) {
      if (file.isNamed) unlinkIfThere(parent, temporary);
      throw error;
    }
    syncDirectory(parent);
  });
}

/**
 * @param {{ root: string, paths: string[] }} args
 * @param {AbortSignal} signal
 */
export async function makeDirs({ root, paths }, signal) {
  for (const path of paths) {
    signal.throwIfAborted();
    await inDirectory({ root, path }, () => undefined, { make: true });
  }
}

/** @param {{ root: string, from: string, to: string }} args */
export async function rename({ root, from, to }) {
  await inParent({ root, path: from }, (fromParent, fromName) =>
    inParent({ root, path: to }, (toParent, toName) => {
      renameSync(at(fromParent, fromName), at(toParent, toName));
      syncDirectory(toParent);
      syncDirectory(fromParent);
    }),
  );
}
