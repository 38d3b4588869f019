/** Copies trees of apps: all content of a directory, into a new or empty directory. */
import { fstatSync, mkdirSync } from "node:fs";
import { at, inDirectory, inParent, isWithin, namesBelow, namesIn } from "./directory.mjs";
import { Measurement } from "./measure.mjs";
import { RequestError, hasCode } from "./request-error.mjs";
import { runInSlices } from "./slices.mjs";
import { TreeCopy } from "./tree-copy.mjs";

/** Bytes after which the disk starts to write. */
const syncBytes = 32 << 20;

/** @typedef {import("./host/syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("./directory.mjs").RootedPath} RootedPath */

/**
 * @typedef {object} CopyArgs
 * @property {RootedPath} from
 * @property {RootedPath} to
 * @property {string[]} exclude paths relative to `from`
 */

/**
 * @param {Syscalls} syscalls
 * @param {CopyArgs} args
 * @param {(progress: { doneBytes: number, totalBytes?: number }) => void} report
 * @param {AbortSignal} signal
 * @returns {Promise<{ copiedBytes: number, entries: number }>}
 */
export async function copyTree(syscalls, { from, to, exclude }, report, signal) {
  const excluded = new Set(exclude.map((path) => namesBelow({ root: "/", path }).join("/")));
  if (excluded.has("")) throw new RequestError("INVALID", "must not exclude the whole tree");
  return inDirectory(from, async (source) => {
    await makeTarget(to);
    return inDirectory(to, async (target) => {
      if (isWithin(target, fstatSync(source))) throw new RequestError("INVALID", "cannot go into itself");
      const measurement = new Measurement(excluded);
      /** @type {number | undefined} */
      let totalBytes;
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      const measuring = runInSlices(measurement.directory(source), either).then(() => {
        totalBytes = measurement.allocatedBytes;
      });
      // The rejection is handled where it is awaited below.
      measuring.catch(() => undefined);
      let startedBytes = 0;
      /** @type {Promise<void> | undefined} */
      let syncing;
      const progress = (/** @type {number} */ doneBytes) => {
        // The disk writes while the rest is copied.
        if (syncing === undefined && doneBytes - startedBytes >= syncBytes) {
          startedBytes = doneBytes;
          // The sync at the end reports errors.
          syncing = syscalls
            .syncTree(target)
            .catch(() => undefined)
            .finally(() => (syncing = undefined));
        }
        report(
          totalBytes === undefined
            ? { doneBytes }
            : { doneBytes: Math.min(doneBytes, totalBytes), totalBytes },
        );
      };
      try {
        await new TreeCopy(syscalls, target, progress, either).runContent(source, excluded);
        await measuring;
      } catch (error) {
        failed.abort(error);
        throw error;
      }
      await syncing;
      await syscalls.syncTree(target);
      report({ doneBytes: measurement.allocatedBytes, totalBytes: measurement.allocatedBytes });
      return { copiedBytes: measurement.allocatedBytes, entries: measurement.entries };
    });
  });
}

/** @param {RootedPath} to */
async function makeTarget(to) {
  if (namesBelow(to).length > 0) await inParent(to, makeUnlessThere);
  await inDirectory(to, (fd) => {
    if (!namesIn(fd).next().done) throw new RequestError("WRONG_TYPE", "must be empty to be copied to");
  });
}

/**
 * @param {number} parent
 * @param {string} name
 */
function makeUnlessThere(parent, name) {
  try {
    mkdirSync(at(parent, name), 0o700);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}
