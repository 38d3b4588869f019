/**
 * Unpacks archives of any origin, completely or not at all: to a staging directory first, then each top-level entry is
 * moved to the target.
 */
import { chmodSync, lstatSync, mkdirSync } from "node:fs";
import {
  at,
  ownedFd,
  namesIn,
  openForReading,
  openSubdirectory,
  reopen,
  syncDirectory,
} from "../../directory.mjs";
import { RequestError, hasCode } from "../../request-error.mjs";
import { entryAt } from "../entries.mjs";
import { withParent, opened } from "../host-path.mjs";
import { Slices } from "../../slices.mjs";
import { spell } from "../spelling.mjs";
import { inStage, item } from "../staging.mjs";
import { Budget } from "./budget.mjs";
import { unpackTar } from "./tar-unpack.mjs";
import { UnpackSink } from "./unpack-sink.mjs";
import { unpackZip } from "./zip-unpack.mjs";

/** Error codes of zlib and zstd for invalid content. */
const zlibCode = /^(Z_|ZSTD_|ERR_ZSTD)/;

/** @typedef {import("../syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("../guard.mjs").Guard} Guard */

/**
 * @typedef {(stage: number) => Promise<(directory: number) => void>} Fill Unpacks the archive to a staging directory.
 *   The returned function is called when everything has been moved.
 */

/**
 * @typedef {object} UnpackArgs
 * @property {string} path of the archive
 * @property {string} target a directory, created if missing
 * @property {import("./decompress.mjs").TarFormat | "zip"} format
 * @property {string} nameEncoding of names that are not UTF-8; empty: CP437 in a zip, and unchanged bytes in a tar
 * @property {boolean} overwrite
 * @property {string} temporary
 * @property {import("./budget.mjs").Limits} limits
 * @property {import("../guard.mjs").Guarded | undefined} [guard]
 */

/**
 * @param {Syscalls} syscalls
 * @param {UnpackArgs} args
 * @param {(doneBytes: number) => void} report
 * @param {AbortSignal} signal
 */
export async function unpackFiles(syscalls, { path, target, guard, ...args }, report, signal) {
  return withParent(syscalls, { path, guard }, { follow: true }, (archive) =>
    opened(archive, async (fd, stats) => {
      if (!stats.isFile()) throw new RequestError("WRONG_TYPE", "is not a regular file");
      await using file = await openForReading(fd);
      const budget = new Budget(args.limits, Number(stats.size));
      const fill = (/** @type {number} */ stage) =>
        unpackToStage(syscalls, file, stage, args, budget, report, signal);
      try {
        return await withParent(syscalls, { path: target, guard }, { follow: true }, async (found) => {
          await (isThere(found.parent, found.name)
            ? unpackInto(syscalls, found, args, fill, signal)
            : unpackAs(syscalls, found, args, fill, signal));
          const entry = entryAt(found.parent, found.name);
          return { entry, entries: budget.entries, bytes: budget.bytes };
        });
      } catch (error) {
        throw aboutTarget(error, target);
      }
    }),
  );
}

/**
 * @param {Syscalls} syscalls
 * @param {import("node:fs/promises").FileHandle} file
 * @param {number} stage
 * @param {Pick<UnpackArgs, "format" | "nameEncoding">} args
 * @param {Budget} budget
 * @param {(doneBytes: number) => void} report
 * @param {AbortSignal} signal
 */
async function unpackToStage(syscalls, file, stage, { format, nameEncoding }, budget, report, signal) {
  mkdirSync(at(stage, item), 0o700);
  using root = ownedFd(openSubdirectory(stage, item));
  using sink = new UnpackSink(syscalls, root.fd, budget);
  const slices = new Slices(signal);
  const step = async () => {
    if (!slices.isOver) return;
    report(budget.bytes);
    await slices.nextSlice();
  };
  try {
    if (format === "zip") await unpackZip(file, nameEncoding || "cp437", sink, budget, step);
    else await unpackTar(file, format, nameEncoding, sink, budget, step);
    return sink.finish();
  } catch (error) {
    throw asRejection(error);
  }
}

/**
 * Creates the target directory from the staged one with all its content.
 * @param {Syscalls} syscalls
 * @param {import("../host-path.mjs").Found} found
 * @param {Pick<UnpackArgs, "temporary">} args
 * @param {Fill} fill
 * @param {AbortSignal} signal
 */
async function unpackAs(syscalls, { parent, name }, { temporary }, fill, signal) {
  await inStage(parent, temporary, async (stage) => {
    const settled = await fill(stage);
    signal.throwIfAborted();
    using made = ownedFd(openSubdirectory(stage, item));
    chmodSync(reopen(made.fd), 0o755);
    syscalls.renameToFree(stage, item, parent, name);
    settled(made.fd);
  });
  syncDirectory(parent);
}

/**
 * Moves the top-level entries of the archive to an existing directory.
 * @param {Syscalls} syscalls
 * @param {import("../host-path.mjs").Found} found
 * @param {Pick<UnpackArgs, "temporary" | "overwrite">} args
 * @param {Fill} fill
 * @param {AbortSignal} signal
 */
async function unpackInto(syscalls, { parent, name, guard }, { temporary, overwrite }, fill, signal) {
  // The name was a directory when it was checked, but a user who can write to the parent may have put a link there.
  using directory = ownedFd(openSubdirectory(parent, name));
  const { fd } = directory;
  guard.admitName(fd, temporary);
  await inStage(fd, temporary, async (stage) => {
    const settled = await fill(stage);
    signal.throwIfAborted();
    using from = ownedFd(openSubdirectory(stage, item));
    settle(syscalls, from.fd, fd, overwrite, guard);
    settled(fd);
  });
  syncDirectory(fd);
}

/**
 * Moves all entries or none.
 * @param {Syscalls} syscalls
 * @param {number} from
 * @param {number} directory
 * @param {boolean} overwrite
 * @param {Guard} guard
 */
function settle(syscalls, from, directory, overwrite, guard) {
  const names = [...namesIn(from)];
  for (const name of names) {
    const old = lstatSync(at(directory, name), { throwIfNoEntry: false });
    if (!old) continue;
    guard.admitWhole(old);
    if (!overwrite) throw taken(name);
  }
  /** @type {(() => void)[]} */
  const back = [];
  try {
    for (const name of names) back.push(settleOne(syscalls, from, directory, name, overwrite));
  } catch (error) {
    for (const undo of back.reverse()) undo();
    throw error;
  }
}

/**
 * @param {Syscalls} syscalls
 * @param {number} from
 * @param {number} directory
 * @param {string} name
 * @param {boolean} overwrite
 * @returns {() => void} undoes the move
 */
function settleOne(syscalls, from, directory, name, overwrite) {
  try {
    syscalls.renameToFree(from, name, directory, name);
    return () => syscalls.renameToFree(directory, name, from, name);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    if (!overwrite || !syscalls.exchange(from, name, directory, name)) throw taken(name);
    return () => void syscalls.exchange(from, name, directory, name);
  }
}

/** @param {string} name */
function taken(name) {
  return Object.assign(new Error("EEXIST"), { code: "EEXIST", entry: spell(name) });
}

/**
 * @param {number} parent
 * @param {string} name
 */
function isThere(parent, name) {
  const stats = lstatSync(at(parent, name), { throwIfNoEntry: false });
  if (stats && !stats.isDirectory()) throw Object.assign(new Error("ENOTDIR"), { code: "ENOTDIR" });
  return stats !== undefined;
}

/**
 * Turns errors of the archive's content into `REFUSED`.
 * @param {unknown} error
 */
function asRejection(error) {
  if (!(error instanceof Error) || !("code" in error)) return error;
  if (error.code === "DAMAGED") return new RequestError("REFUSED", error.message);
  return zlibCode.test(String(error.code))
    ? new RequestError("REFUSED", `cannot be decompressed: ${error.message}`)
    : error;
}

/**
 * @param {unknown} error
 * @param {string} target
 */
function aboutTarget(error, target) {
  if (!(error instanceof Error) || !("code" in error) || hasCode(error, "REFUSED", "LIMIT", "ABORT_ERR"))
    return error;
  const name = "entry" in error ? `/${String(error.entry)}` : "";
  return Object.assign(new Error(error.message), { code: error.code, subject: `${target}${name}` });
}
