/**
 * Writes uploaded or generated files. A file is written without a name, so that nothing is left if the upload breaks
 * off. It is synced to disk and gets its name in one step. A replaced file passes on its mode, owner, group and
 * attributes.
 */
import { fchmodSync, fchownSync, fstatSync, lstatSync, renameSync, unlinkSync } from "node:fs";
import { at, ownedFd, openPath, syncDirectory } from "../directory.mjs";
import { RequestError, hasCode } from "../request-error.mjs";
import { entryAt, tagOf } from "./entries.mjs";
import { assertNamed, withParent } from "./host-path.mjs";
import { exists } from "./syscalls.mjs";
import { openUnnamed, unlinkIfThere } from "./unnamed-file.mjs";

const defaultMode = 0o644;
/** Large enough that a write-back costs next to nothing. */
const writeBackBytes = 16 << 20;

/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("./host-path.mjs").Found} Found */
/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("node:fs").BigIntStats} BigIntStats */

/**
 * @typedef {object} UploadArgs
 * @property {boolean} overwrite
 * @property {string} ifMatch the entity tag that the replaced file must have; empty for any
 * @property {number | null} mode of a new file
 * @property {string} temporary an unused name, for the moment before the file gets its own
 */

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath & UploadArgs} args
 * @param {import("../chunk-flow.mjs").ChunkInbox} input
 * @param {AbortSignal} signal
 */
export async function uploadFile(syscalls, args, input, signal) {
  return placeFile(syscalls, args, signal, async (file) => {
    await using writeBack = new WriteBack(() => syscalls.beginWriteBack(file.fd));
    for await (const pieces of input.batches()) {
      await appendAll(file, pieces);
      writeBack.count(pieces);
    }
  });
}

/** Writes data to disk while more arrives, so that little is left to wait for at the end. */
export class WriteBack {
  #begin;
  #bytes = 0;
  /** @type {Promise<void> | undefined} */
  #beginning;

  /** @param {() => Promise<void>} begin starts writing everything so far to disk; resolves when the write-back has started */
  constructor(begin) {
    this.#begin = begin;
  }

  /** @param {Buffer[]} pieces written since the last call */
  count(pieces) {
    for (const { length } of pieces) this.#bytes += length;
    if (this.#bytes < writeBackBytes || this.#beginning !== undefined) return;
    this.#bytes = 0;
    this.#beginning = this.#begin().finally(() => (this.#beginning = undefined));
  }

  /** Resolves when no write-back is running: its descriptor may be reused afterwards. */
  async [Symbol.asyncDispose]() {
    await this.#beginning;
  }
}

/**
 * Appends pieces, with one system call if possible.
 * @param {import("node:fs/promises").FileHandle} file
 * @param {Buffer[]} pieces
 */
async function appendAll(file, pieces) {
  let { bytesWritten: passed } = await file.writev(pieces);
  for (const piece of pieces) {
    if (passed < piece.length) await file.appendFile(piece.subarray(passed));
    passed = Math.max(0, passed - piece.length);
  }
}

/**
 * @param {Syscalls} syscalls
 * @param {GuardedPath & UploadArgs} args
 * @param {AbortSignal} signal
 * @param {(file: import("node:fs/promises").FileHandle, old: BigIntStats | undefined) => Promise<void>} fill
 */
export async function placeFile(syscalls, { overwrite, ifMatch, mode, temporary, ...target }, signal, fill) {
  return withParent(syscalls, target, { follow: false }, async (found) => {
    assertNamed(found);
    const { parent, name } = found;
    const conditions = { overwrite, ifMatch };
    // Checked now, so that no upload is wasted, and again when it is complete.
    const replaced = admitTarget(found, conditions);
    await using file = await openUnnamed(syscalls, parent, temporary);
    try {
      await fill(file.handle, replaced);
      signal.throwIfAborted();
      const old = admitTarget(found, conditions);
      copyAttributes(syscalls, file.handle.fd, found, old, mode);
      await file.handle.sync();
      signal.throwIfAborted();
      linkName(syscalls, file, found, old, conditions, temporary);
    } catch (error) {
      if (file.isNamed) unlinkIfThere(parent, temporary);
      throw error;
    }
    syncDirectory(parent);
    return entryAt(parent, name);
  });
}

/**
 * @param {Found} found
 * @param {{ overwrite: boolean, ifMatch: string }} conditions
 * @returns {BigIntStats | undefined} the file to replace, if any
 */
function admitTarget({ parent, name, guard }, { overwrite, ifMatch }) {
  const old = lstatSync(at(parent, name), { bigint: true, throwIfNoEntry: false });
  if (old) guard.admit(old);
  assertTag(old, ifMatch);
  if (!old) return undefined;
  if (!overwrite) throw Object.assign(new Error("EEXIST"), { code: "EEXIST" });
  if (old.isDirectory()) throw Object.assign(new Error("EISDIR"), { code: "EISDIR" });
  if (old.isSymbolicLink()) {
    throw new RequestError("WRONG_TYPE", "is a symbolic link: write to what it points to");
  }
  if (!old.isFile()) throw new RequestError("WRONG_TYPE", "is not a regular file");
  return old;
}

/**
 * @param {BigIntStats | undefined} stats
 * @param {string} ifMatch
 */
function assertTag(stats, ifMatch) {
  if (ifMatch === "") return;
  const tag = stats ? tagOf(stats) : "";
  if (tag === "" || (ifMatch !== "*" && ifMatch !== tag)) {
    throw changed();
  }
}

/**
 * @param {Syscalls} syscalls
 * @param {number} fd
 * @param {Found} found
 * @param {BigIntStats | undefined} old
 * @param {number | null} mode
 */
function copyAttributes(syscalls, fd, { parent, name }, old, mode) {
  if (!old) {
    fchmodSync(fd, mode ?? defaultMode);
    return;
  }
  const { uid, gid } = fstatSync(fd, { bigint: true });
  // A user who may not change owners replaces another user's file with their own, as all tools do.
  if (uid !== old.uid) tryChown(fd, Number(old.uid), Number(old.gid));
  else if (gid !== old.gid) tryChown(fd, -1, Number(old.gid));
  using replaced = ownedFd(openPath(parent, name));
  if (fstatSync(replaced.fd).isFile()) syscalls.copyAttributes(replaced.fd, fd);
  // New content does not keep setuid and setgid, as with write(2).
  fchmodSync(fd, Number(old.mode) & 0o1777);
}

/**
 * @param {number} fd
 * @param {number} uid
 * @param {number} gid
 */
function tryChown(fd, uid, gid) {
  try {
    fchownSync(fd, uid, gid);
  } catch (error) {
    if (!hasCode(error, "EPERM")) throw error;
  }
}

/**
 * Gives the file its name. The replaced file is swapped out in the same step and then checked: if it has changed at the
 * last moment, the swap is undone.
 * @param {Syscalls} syscalls
 * @param {{ handle: import("node:fs/promises").FileHandle, isNamed: boolean }} file
 * @param {Found} found
 * @param {BigIntStats | undefined} old
 * @param {{ overwrite: boolean, ifMatch: string }} conditions
 * @param {string} temporary
 */
function linkName(syscalls, file, { parent, name }, old, { overwrite, ifMatch }, temporary) {
  if (!file.isNamed) {
    if (!exists(parent, name)) {
      try {
        syscalls.link(file.handle.fd, parent, name);
        return;
      } catch (error) {
        if (!overwrite || !hasCode(error, "EEXIST")) throw error;
      }
    }
    syscalls.link(file.handle.fd, parent, temporary);
    file.isNamed = true;
  }
  if (!overwrite || !exists(parent, name)) {
    syscalls.renameToFree(parent, temporary, parent, name);
    return;
  }
  if (!syscalls.exchange(parent, temporary, parent, name)) {
    renameSync(at(parent, temporary), at(parent, name));
    return;
  }
  try {
    const taken = lstatSync(at(parent, temporary), { bigint: true });
    if (!taken.isFile() || (ifMatch !== "" && !isSame(taken, old))) throw changed();
    unlinkSync(at(parent, temporary));
  } catch (error) {
    syscalls.exchange(parent, temporary, parent, name);
    throw error;
  }
}

/**
 * Whether both are the same file with the same content. A rename changes ctime, so it is not compared.
 * @param {BigIntStats} one
 * @param {BigIntStats | undefined} other
 */
function isSame(one, other) {
  return one.ino === other?.ino && one.size === other.size && one.mtimeNs === other.mtimeNs;
}

function changed() {
  return new RequestError("CHANGED", "has changed since it was read");
}
