/**
 * A staging directory next to the target, in which long work is prepared before it becomes visible. Nobody else can
 * enter it. The daemon knows its name and has it removed if this process dies.
 */
import { fstatSync, lstatSync, mkdirSync, renameSync, rmdirSync } from "node:fs";
import { at, ownedFd, namesIn, openSubdirectory, reopen, syncDirectory } from "../directory.mjs";
import { RequestError } from "../request-error.mjs";
import { removeTree } from "../remove-tree.mjs";
import { withParent } from "./host-path.mjs";
import { exists } from "./syscalls.mjs";
import { unlinkIfThere } from "./unnamed-file.mjs";

/** The name of the result in the staging directory. */
export const item = "new";

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */

/**
 * @template T
 * @param {number} parent
 * @param {string} temporary
 * @param {(stage: number) => T | Promise<T>} work
 * @returns {Promise<T>}
 */
export async function inStage(parent, temporary, work) {
  mkdirSync(at(parent, temporary), 0o700);
  using stage = ownedFd(openSubdirectory(parent, temporary));
  if (!isPrivate(stage.fd) || !namesIn(stage.fd).next().done) {
    throw new RequestError("MOVED", "was moved while it was made");
  }
  try {
    return await work(stage.fd);
  } finally {
    await clear(parent, temporary, stage.fd);
  }
}

/**
 * A user who can write to the parent may have replaced the directory.
 * @param {number} stage
 */
function isPrivate(stage) {
  const { uid, mode } = fstatSync(stage);
  return uid === process.geteuid?.() && (mode & 0o077) === 0;
}

/**
 * @param {number} parent
 * @param {string} temporary
 * @param {number} stage removed by its descriptor: something else may have its name
 */
async function clear(parent, temporary, stage) {
  // Works also for a copied read-only directory; its owner sees anything that is left.
  await removeTree({ root: reopen(stage), path: "." }, new AbortController().signal).catch(() => undefined);
  try {
    rmdirSync(at(parent, temporary));
  } catch {
    // The directory is not empty, or the name belongs to something else.
  }
}

/**
 * Removes the leftovers of a process that died.
 * @param {Syscalls} syscalls
 * @param {import("./host-path.mjs").GuardedPath & { temporary: string }} args `path`: the target next to which it is
 */
export async function discard(syscalls, { temporary, ...target }) {
  await withParent(syscalls, target, { follow: false }, async ({ parent }) => {
    const leftover = lstatSync(at(parent, temporary), { throwIfNoEntry: false });
    if (leftover?.isDirectory() !== true) {
      unlinkIfThere(parent, temporary);
      return;
    }
    using stage = ownedFd(openSubdirectory(parent, temporary));
    if (isPrivate(stage.fd)) await clear(parent, temporary, stage.fd);
  });
}

/**
 * Moves the result to the target. A replaced file is removed.
 * @param {Syscalls} syscalls
 * @param {number} stage
 * @param {{ parent: number, name: string }} target
 * @param {{ overwrite: boolean, sync: boolean }} options `sync`: sync the directory even if nothing is replaced
 */
export function putInPlace(syscalls, stage, { parent, name }, { overwrite, sync }) {
  if (!overwrite || !exists(parent, name)) {
    syscalls.renameToFree(stage, item, parent, name);
    // As with cp(1), whose copies are as durable as any new file: syncing would be slower than copying.
    if (!sync) return;
  } else if (!syscalls.exchange(stage, item, parent, name)) {
    renameSync(at(stage, item), at(parent, name));
  }
  syncDirectory(parent);
}
