/** Removes paths with everything below them. Entries that cannot be removed stay and are reported. */
import { lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { at } from "../directory.mjs";
import { assertNamed, withParent } from "./host-path.mjs";
import { Walk } from "./walk.mjs";

/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */

/**
 * @param {Syscalls} syscalls
 * @param {{ paths: string[], guard?: import("./guard.mjs").Guarded | undefined }} args
 * @param {(entries: number) => void} report
 * @param {AbortSignal} signal
 */
export async function deletePaths(syscalls, { paths, guard }, report, signal) {
  /** @type {string[]} */
  const deleted = [];
  /** @type {import("./walk.mjs").Failure[]} */
  const failures = [];
  let failureCount = 0;
  let entries = 0;
  for (const path of paths) {
    signal.throwIfAborted();
    const walk = removal(path);
    try {
      await withParent(syscalls, { path, guard }, { follow: false }, async (found) => {
        assertNamed(found);
        const { parent, name } = found;
        const stats = lstatSync(at(parent, name));
        found.guard.admitWhole(stats);
        if (stats.isDirectory()) await walk.run(parent, name, (count) => report(entries + count), signal);
        else unlinkSync(at(parent, name));
      });
    } catch (error) {
      if (signal.aborted) throw error;
      walk.fail(path, error);
    }
    entries += walk.entries + 1;
    if (walk.failureCount === 0) deleted.push(path);
    failureCount += walk.failureCount;
    failures.push(...walk.failures);
  }
  return { deleted, failures: failures.slice(0, 1000), failureCount };
}

/**
 * Removes one tree; fails if part of it cannot be removed.
 * @param {number} parent
 * @param {string} name
 * @param {string} path
 * @param {AbortSignal} signal
 */
export async function removeWhole(parent, name, path, signal) {
  const stats = lstatSync(at(parent, name), { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isDirectory()) {
    unlinkSync(at(parent, name));
    return;
  }
  const walk = removal(path);
  await walk.run(parent, name, () => undefined, signal);
  walk.throwFirst();
}

/** @param {string} path */
function removal(path) {
  return new Walk(path, {
    leaf: (directory, name) => unlinkSync(at(directory, name)),
    leave: (directory, name) => rmdirSync(at(directory, name)),
    empties: true,
  });
}
