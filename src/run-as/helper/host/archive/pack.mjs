/** Packs files of the host into an archive, which becomes visible when it is complete, like an upload. */
import { closeSync, lstatSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGzip, createZstdCompress } from "node:zlib";
import { at, openPath } from "../../directory.mjs";
import { RequestError } from "../../request-error.mjs";
import { assertNamed, withParent } from "../host-path.mjs";
import { namesOf, spell } from "../spelling.mjs";
import { openEntry, treeEntries } from "../tree-entries.mjs";
import { placeFile } from "../upload.mjs";
import { tarBytes } from "./tar-bytes.mjs";
import { zipBytes } from "./zip-bytes.mjs";

const blockBytes = 256 << 10;

/** @typedef {import("../syscalls.mjs").Syscalls} Syscalls */
/** @typedef {import("../tree-entries.mjs").TreeEntry} TreeEntry */

/**
 * @typedef {object} PackArgs
 * @property {string} path of the archive
 * @property {string[]} paths the paths to pack
 * @property {"tar.gz" | "tar.zst" | "zip"} format
 * @property {boolean} overwrite
 * @property {string} temporary
 * @property {import("../guard.mjs").Guarded | undefined} [guard]
 */

/**
 * @param {Syscalls} syscalls
 * @param {PackArgs} args
 * @param {(doneBytes: number) => void} report
 * @param {AbortSignal} signal
 */
export async function packFiles(syscalls, { paths, format, ...args }, report, signal) {
  assertApart(paths);
  const target = { ...args, ifMatch: "", mode: null };
  return placeFile(syscalls, target, signal, async (file, old) => {
    const source = new PackSource(syscalls, args, old, report, signal);
    const keep = async (/** @type {AsyncIterable<Buffer>} */ pieces) => {
      for await (const piece of pieces) await file.appendFile(piece);
    };
    if (format === "zip") await pipeline(zipBytes(source, paths), keep, { signal });
    else await pipeline(() => tarBytes(source, paths), compressor(format), keep, { signal });
  });
}

/** @param {"tar.gz" | "tar.zst"} format */
function compressor(format) {
  return format === "tar.gz" ? createGzip() : createZstdCompress();
}

/**
 * Each path is stored under its last name, which must be unique.
 * @param {string[]} paths
 */
function assertApart(paths) {
  const names = new Set();
  for (const path of paths) {
    const name = namesOf(path).at(-1);
    if (names.has(name)) {
      const error = new RequestError("INVALID", "has the same name as another path in the archive");
      throw Object.assign(error, { subject: path });
    }
    names.add(name);
  }
}

/** The files to pack and their content. */
export class PackSource {
  #syscalls;
  #guard;
  #old;
  #temporary;
  #report;
  #doneBytes = 0;
  #base = "";
  signal;

  /**
   * @param {Syscalls} syscalls
   * @param {Pick<PackArgs, "guard" | "temporary">} args
   * @param {import("node:fs").BigIntStats | undefined} old the file that the archive replaces
   * @param {(doneBytes: number) => void} report
   * @param {AbortSignal} signal
   */
  constructor(syscalls, { guard, temporary }, old, report, signal) {
    this.#syscalls = syscalls;
    this.#guard = guard;
    this.#old = old;
    this.#temporary = temporary;
    this.#report = report;
    this.signal = signal;
  }

  /**
   * Yields files, directories and links below a path.
   * @param {string} path
   * @returns {AsyncGenerator<TreeEntry, void, void>}
   */
  async *entries(path) {
    const target = { path, guard: this.#guard };
    const { parent, name } = await withParent(this.#syscalls, target, { follow: false }, (found) => {
      assertNamed(found);
      found.guard.admitWhole(lstatSync(at(found.parent, found.name)));
      return { parent: openPath(found.parent, "."), name: found.name };
    });
    this.#base = path;
    const fail = (/** @type {string[]} */ names, /** @type {unknown} */ error) => {
      throw this.blame(names, error);
    };
    try {
      for await (const entry of treeEntries(parent, name, this.signal, { fail })) {
        if (!entry.isLeft && this.#isPacked(entry)) yield entry;
      }
    } finally {
      closeSync(parent);
    }
  }

  /**
   * Yields the content of a file, up to its size when it was opened.
   * @param {TreeEntry} entry
   * @returns {AsyncGenerator<Buffer, void, void>}
   */
  async *bytesOf(entry) {
    try {
      yield* this.#read(entry);
    } catch (error) {
      throw this.blame(entry.path, error);
    }
  }

  /**
   * @param {TreeEntry} entry
   * @returns {AsyncGenerator<Buffer, void, void>}
   */
  async *#read(entry) {
    await using file = await openEntry(entry);
    if (file === undefined) throw new RequestError("MOVED", "was moved while it was packed");
    let remaining = Number(entry.stats.size);
    for (let position = 0; remaining > 0;) {
      const buffer = Buffer.allocUnsafe(Math.min(blockBytes, remaining));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
      if (bytesRead === 0) throw new RequestError("WRONG_TYPE", "was truncated while it was read");
      position += bytesRead;
      remaining -= bytesRead;
      this.#doneBytes += bytesRead;
      this.#report(this.#doneBytes);
      yield buffer.subarray(0, bytesRead);
    }
  }

  /**
   * Adds the path of the entry that failed to an error.
   * @param {string[]} names
   * @param {unknown} error
   */
  blame(names, error) {
    if (this.signal.aborted || !(error instanceof Error) || !("code" in error)) return error;
    const subject = [this.#base, ...names.slice(1).map(spell)].join("/");
    return Object.assign(new Error(error.message), { code: error.code, subject });
  }

  /** @param {TreeEntry} entry */
  #isPacked({ name, stats }) {
    const isKind = stats.isFile() || stats.isDirectory() || stats.isSymbolicLink();
    const isArchive =
      name === this.#temporary || (stats.ino === this.#old?.ino && stats.dev === this.#old.dev);
    return isKind && !isArchive;
  }
}
