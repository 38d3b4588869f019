/** Copies and moves. A copy is complete before it becomes visible, and replaces existing files in one step. */
import { lstatSync, renameSync } from "node:fs";
import { at, isWithin, syncDirectory } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { removeWhole } from "./delete-paths.mjs";
import { entryAt } from "./entries.mjs";
import { assertNamed, withParent } from "./host-path.mjs";
import { inStage, item, putInPlace } from "./staging.mjs";
import { exists } from "./syscalls.mjs";
import { TreeCopy } from "../tree-copy.mjs";

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("./host-path.mjs").Found} Found */

/**
 * @typedef {object} RelocateArgs
 * @property {string} from
 * @property {string} to
 * @property {boolean} overwrite
 * @property {string} temporary
 * @property {import("./guard.mjs").Guarded | undefined} [guard]
 */

/** @typedef {(doneBytes: number) => void} Report */

/**
 * @param {Syscalls} syscalls
 * @param {RelocateArgs} args
 * @param {Report} report
 * @param {AbortSignal} signal
 */
export async function copyPath(syscalls, args, report, signal) {
  return withBothParents(syscalls, args, async (source, target) => {
    const copiedBytes = await copy(syscalls, source, target, args, { report, signal });
    return { entry: entryAt(target.parent, target.name), copiedBytes };
  });
}

/**
 * @param {Syscalls} syscalls
 * @param {RelocateArgs} args
 * @param {Report} report
 * @param {AbortSignal} signal
 */
export async function movePath(syscalls, args, report, signal) {
  return withBothParents(syscalls, args, async (source, target) => {
    try {
      rename(syscalls, source, target, args.overwrite);
    } catch (error) {
      if (!hasCode(error, "EXDEV", "NOT_EMPTY")) throw error;
      if (hasCode(error, "NOT_EMPTY")) await replaceTree(syscalls, source, target, args.temporary, signal);
      else {
        await copy(syscalls, source, target, args, { report, signal, sync: true });
        // The copy is on disk and stays, even if removing the source fails.
        await removeWhole(source.parent, source.name, args.from, signal);
      }
    }
    syncDirectory(target.parent);
    syncDirectory(source.parent);
    return entryAt(target.parent, target.name);
  });
}

/**
 * @template T
 * @param {Syscalls} syscalls
 * @param {RelocateArgs} args
 * @param {(source: Found, target: Found) => Promise<T>} work
 * @returns {Promise<T>}
 */
async function withBothParents(syscalls, { from, to, overwrite, guard }, work) {
  return withParent(syscalls, { path: from, guard }, { follow: false }, async (source) => {
    assertNamed(source);
    const stats = lstatSync(at(source.parent, source.name));
    source.guard.admitWhole(stats);
    return withParent(syscalls, { path: to, guard }, { follow: false }, async (target) => {
      assertNamed(target);
      const old = lstatSync(at(target.parent, target.name), { throwIfNoEntry: false });
      if (old) source.guard.admitWhole(old);
      if (stats.isDirectory() && isWithin(target.parent, stats)) {
        throw new RequestError("INVALID", "cannot go into itself");
      }
      if (old?.isDirectory() && isWithin(source.parent, old)) {
        throw new RequestError("INVALID", "cannot replace a directory that it is in");
      }
      if (old?.dev === stats.dev && old.ino === stats.ino && old.nlink === 1) {
        throw new RequestError("INVALID", "is already that");
      }
      if (old && !overwrite) throw Object.assign(new Error("EEXIST"), { code: "EEXIST" });
      return work(source, target);
    });
  });
}

/**
 * @param {Syscalls} syscalls
 * @param {Found} source
 * @param {Found} target
 * @param {RelocateArgs} args
 * @param {{ report: Report, signal: AbortSignal, sync?: boolean }} options
 */
async function copy(
  syscalls,
  source,
  target,
  { from, overwrite, temporary },
  { report, signal, sync = false },
) {
  return inStage(target.parent, temporary, async (stage) => {
    const tree = new TreeCopy(syscalls, stage, report, signal);
    const finish = await tree.run(source.parent, source.name, item, from);
    try {
      if (sync) await syscalls.syncTree(stage);
      signal.throwIfAborted();
      putInPlace(syscalls, stage, target, { overwrite, sync });
    } finally {
      finish();
    }
    return tree.copiedBytes;
  });
}

/**
 * @param {Syscalls} syscalls
 * @param {Found} source
 * @param {Found} target
 * @param {boolean} overwrite
 */
function rename(syscalls, source, target, overwrite) {
  if (!overwrite || !exists(target.parent, target.name)) {
    syscalls.renameToFree(source.parent, source.name, target.parent, target.name);
    return;
  }
  try {
    renameSync(at(source.parent, source.name), at(target.parent, target.name));
  } catch (error) {
    if (!hasCode(error, "ENOTEMPTY", "EEXIST", "EISDIR", "ENOTDIR")) throw error;
    throw Object.assign(new Error("NOT_EMPTY"), { code: "NOT_EMPTY" });
  }
}

/**
 * Replaces a tree, or an entry of another type: the old entry is moved to a stage, then removed.
 * @param {Syscalls} syscalls
 * @param {Found} source
 * @param {Found} target
 * @param {string} temporary
 * @param {AbortSignal} signal
 */
async function replaceTree(syscalls, source, target, temporary, signal) {
  await inStage(target.parent, temporary, (stage) => {
    signal.throwIfAborted();
    syscalls.renameToFree(target.parent, target.name, stage, item);
    try {
      syscalls.renameToFree(source.parent, source.name, target.parent, target.name);
    } catch (error) {
      syscalls.renameToFree(stage, item, target.parent, target.name);
      throw error;
    }
  });
}
