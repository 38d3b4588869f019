/**
 * Where what takes long is made before it is seen: a directory beside its place that nobody else can enter, under a name
 * that the daemon knows, which has it removed when this process dies.
 */
import { fstatSync, mkdirSync, renameSync } from "node:fs";
import { at, held, namesIn, openSubdirectory, reopen, syncDirectory } from "../directory.mjs";
import { RequestError } from "../request-error.mjs";
import { removeTree } from "../remove-tree.mjs";
import { inPlace } from "./host-path.mjs";
import { exists } from "./syscalls.mjs";

/** The name in it of what is made. */
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
  try {
    using stage = held(openSubdirectory(parent, temporary));
    assertPrivate(stage.fd);
    return await work(stage.fd);
  } finally {
    await clear(parent, temporary);
  }
}

/**
 * Whoever may write to its parent may have put another directory in its place meanwhile.
 * @param {number} stage
 */
function assertPrivate(stage) {
  const { uid, mode } = fstatSync(stage);
  if (uid !== process.geteuid?.() || (mode & 0o077) !== 0 || !namesIn(stage).next().done) {
    throw new RequestError("MOVED", "was moved while it was made");
  }
}

/**
 * @param {number} parent
 * @param {string} temporary
 */
async function clear(parent, temporary) {
  // Of a read-only directory that was copied, too; whatever is left, its owner sees it.
  await removeTree({ root: reopen(parent), path: temporary }, new AbortController().signal).catch(
    () => undefined,
  );
}

/**
 * Removes what a process that died has left.
 * @param {Syscalls} syscalls
 * @param {import("./host-path.mjs").HostPlace & { temporary: string }} args `path`: beside which it lies.
 */
export async function discard(syscalls, { temporary, ...place }) {
  await inPlace(syscalls, place, { follow: false }, ({ parent }) => clear(parent, temporary));
}

/**
 * Gives what was made its place. What it replaces is gone afterwards.
 * @param {Syscalls} syscalls
 * @param {number} stage
 * @param {{ parent: number, name: string }} target
 * @param {{ overwrite: boolean, sync: boolean }} options `sync`: even what replaces nothing has its place on the disk then.
 */
export function putInPlace(syscalls, stage, { parent, name }, { overwrite, sync }) {
  if (!overwrite || !exists(parent, name)) {
    syscalls.renameToFree(stage, item, parent, name);
    // As with cp(1), whose copies are as lasting as any other new file: the disk is slower than the copying.
    if (!sync) return;
  } else if (!syscalls.exchange(stage, item, parent, name)) {
    renameSync(at(stage, item), at(parent, name));
  }
  syncDirectory(parent);
}
