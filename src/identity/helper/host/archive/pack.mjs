/** Archives that are made of what lies on the host, in the place of an upload: seen when they are whole. */
import { closeSync, lstatSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGzip, createZstdCompress } from "node:zlib";
import { at, openPlace } from "../../directory.mjs";
import { RequestError } from "../../request-error.mjs";
import { assertNamed, inPlace } from "../host-path.mjs";
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
 * @property {string} path Of the archive.
 * @property {string[]} paths What is packed.
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
 * Each goes by its last name.
 * @param {string[]} paths
 */
function assertApart(paths) {
  const names = new Set();
  for (const path of paths) {
    const name = namesOf(path).at(-1);
    if (names.has(name)) {
      const error = new RequestError("INVALID", "has the name of another one in the archive");
      throw Object.assign(error, { subject: path });
    }
    names.add(name);
  }
}

/** What is packed, and its bytes. */
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
   * @param {import("node:fs").BigIntStats | undefined} old What the archive replaces.
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
   * Files, directories and links of one path.
   * @param {string} path
   * @returns {AsyncGenerator<TreeEntry, void, void>}
   */
  async *entries(path) {
    const place = { path, guard: this.#guard };
    const { parent, name } = await inPlace(this.#syscalls, place, { follow: false }, (found) => {
      assertNamed(found);
      found.guard.admitWhole(lstatSync(at(found.parent, found.name)));
      return { parent: openPlace(found.parent, "."), name: found.name };
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
   * The content of a file as it was when it was opened.
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
    let left = Number(entry.stats.size);
    for (let position = 0; left > 0;) {
      const buffer = Buffer.allocUnsafe(Math.min(blockBytes, left));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
      if (bytesRead === 0) throw new RequestError("WRONG_TYPE", "became shorter while it was read");
      position += bytesRead;
      left -= bytesRead;
      this.#doneBytes += bytesRead;
      this.#report(this.#doneBytes);
      yield buffer.subarray(0, bytesRead);
    }
  }

  /**
   * Of many the one that it is about.
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
