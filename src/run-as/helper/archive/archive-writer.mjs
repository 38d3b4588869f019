/**
 * Writes trees of an app as an archive: a tar of them is cut into zstd frames, and each entry is recorded in the index.
 * See docs/backup-format.md.
 */
import { createHash, hash } from "node:crypto";
import { fstatSync } from "node:fs";
import { loadMallocTrim } from "../../../sys/malloc-trim.mjs";
import { inDirectory, reopen, toLatin1 } from "../directory.mjs";
import { Syscalls } from "../host/syscalls.mjs";
import { FrameWriter, sha256 } from "./frames.mjs";
import { IndexWriter } from "./entry-index.mjs";
import { hasCode } from "../request-error.mjs";
import { runInSlices } from "../slices.mjs";
import { excluder } from "./exclude-patterns.mjs";
import { markedFiles, markOf, settle } from "./file-marks.mjs";
import { damaged } from "./tar-reader.mjs";
import { TreeTar } from "./tree-tar.mjs";
import { VolumeTar } from "./volume-tar.mjs";

const sha256OfNothing = () => hash("sha256", "");
const endOfTar = Buffer.alloc(1024);
const maxWarnings = 100;
/** Prefix of a zstd skippable frame: its magic number and the length of its content. */
const skippablePrefixBytes = 8;
const skippableMagic = 0x184d2a5a;
const maxSkippableBytes = 2 ** 32 - 1;

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */
/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */

/**
 * @typedef {object} WriteArchiveArgs
 * @property {string} root
 * @property {string[]} trees paths below the root; missing ones are skipped
 * @property {string[]} excludes tar(1) patterns of paths below the root, such as `data/cache/*`
 * @property {{ tree: string, excludes: string[] }[]} volumes volumes of the container engine, whose tars are the input;
 *   patterns of paths in the volume
 * @property {boolean} marks record for each file what is needed to detect changes later
 * @property {{ indexBytes: number, indexSha256: string } | null} since the index of an earlier archive with marks,
 *   which comes first in the input: unchanged files are stored by name only
 * @property {string[]} unmarked paths of files that are always stored with content
 * @property {string} runId
 */

/**
 * @typedef {object} TreeOptions
 * @property {(path: string) => boolean} isExcluded
 * @property {boolean} marks
 * @property {Map<string, IndexedEntry> | null} before
 * @property {ReadonlySet<string>} never paths of files without marks
 * @property {string} runId
 */

/** The written parts: frames, then the index and the table of the frames, each in a skippable frame. */
export class ArchiveWriter {
  #frames;
  #index = new IndexWriter();
  #output;
  #report;
  #written = 0;
  #entries = 0;
  #contentBytes = 0;
  /** Bytes of the current, unfinished entry. */
  #entryBytes = 0;
  /** @type {string[]} */
  #warnings = [];
  #syscalls = new Syscalls();

  /**
   * @param {(bytes: Buffer, onWritten?: () => void) => Promise<void>} output
   * @param {(doneBytes: number) => void} report
   */
  constructor(output, report) {
    this.#output = output;
    this.#report = report;
    this.#frames = new FrameWriter(output);
  }

  /**
   * @param {WriteArchiveArgs} args
   * @param {import("./byte-source.mjs").ByteSource} source the volumes, as {@link VolumeTar.read} expects them
   * @param {AbortSignal} signal
   */
  async write({ root, trees, excludes, volumes, marks, since, unmarked, runId }, source, signal) {
    const before = since && (await takeMarked(since, source));
    const options = {
      isExcluded: excluder(excludes),
      marks,
      before,
      never: new Set(unmarked.map(toLatin1)),
      runId,
    };
    if (!this.#syscalls.isNative) {
      this.#warn(
        "extended attributes, ACLs and holes are left out: the required system calls are not available",
      );
    }
    await inDirectory({ root, path: "." }, async (fd) => {
      for (const tree of trees) await this.#tree({ root: reopen(fd), path: tree }, options, signal);
    });
    for (const volume of volumes) await this.#volume(volume, source);
    this.#frames.write(endOfTar);
    await this.#frames.end();
    const index = await this.#index.end();
    const table = this.#frames.table();
    const framesBytes = this.#frames.storedBytes;
    await this.#skippable(index);
    await this.#skippable(table);
    // Frees memory before the index is pushed, which allocates memory itself.
    await loadMallocTrim()?.();
    return {
      framesBytes,
      tarBytes: this.#frames.rawBytes,
      contentBytes: this.#contentBytes,
      entries: this.#entries,
      index: { bytes: index.length, sha256: sha256(index).toString("hex") },
      table: { bytes: table.length, sha256: sha256(table).toString("hex") },
      warnings: this.#warnings,
    };
  }

  /** @param {Buffer} content */
  async #skippable(content) {
    if (content.length > maxSkippableBytes) throw new RangeError("has too many entries for one archive");
    const prefix = Buffer.alloc(skippablePrefixBytes);
    prefix.writeUInt32LE(skippableMagic, 0);
    prefix.writeUInt32LE(content.length, 4);
    await this.#output(prefix);
    await this.#output(content);
  }

  /**
   * Writes a tree; does nothing if it is missing.
   * @param {import("../directory.mjs").RootedPath} target
   * @param {TreeOptions} options
   * @param {AbortSignal} signal
   */
  async #tree(target, { isExcluded, marks, before, never, runId }, signal) {
    /** @type {IndexedEntry[]} */
    const same = [];
    let settledMs = 0;
    let mark = "";
    const isKnown = (/** @type {string} */ path, /** @type {number} */ file) => {
      const stat = fstatSync(file, { bigint: true });
      const own = never.has(path) ? "" : markOf(stat);
      const known = before?.get(path);
      if (own !== "" && known?.mark === own) {
        same.push(known);
        return true;
      }
      mark = Number(stat.ctimeMs) < settledMs ? own : "";
      return false;
    };
    const handler = this.#handler(() => mark);
    const options = { syscalls: this.#syscalls, isExcluded, ...((marks || before) && { isKnown }) };
    const tar = new TreeTar({ ...handler, warn: (warning) => this.#warn(warning) }, options);
    try {
      await inDirectory(target, async (fd) => {
        if (marks && !before) settledMs = await settle(fd, runId, signal);
        await runInSlices(tar.read(fd, toLatin1(target.path)), signal, () => this.#room());
      });
    } catch (error) {
      // The error is about the tree itself, not about an entry in it.
      if (hasCode(error, "ENOENT") && error instanceof Error && !("subject" in error)) return;
      throw error;
    }
    for (const entry of same) {
      this.#entries++;
      this.#index.add({
        ...entry,
        at: this.#written,
        dataAt: this.#written,
        stored: 0,
        mark: "",
        same: true,
      });
    }
  }

  /**
   * @param {{ tree: string, excludes: string[] }} volume
   * @param {import("./byte-source.mjs").ByteSource} source
   */
  async #volume({ tree, excludes }, source) {
    const warn = (/** @type {string} */ warning) => this.#warn(warning);
    const tar = new VolumeTar(tree, excludes, { ...this.#handler(), warn });
    await tar.read(source, () => this.#room());
  }

  /**
   * Records entries as they are written.
   * @param {() => string} [markNow] the mark of the current file
   */
  #handler(markNow) {
    /** @type {import("node:crypto").Hash | undefined} */
    let hashing;
    /** @type {IndexedEntry | undefined} */
    let current;
    const take = (/** @type {Buffer} */ piece) => {
      this.#written += piece.length;
      this.#frames.write(piece);
    };
    const note = (/** @type {Buffer} */ piece) => {
      // Most files are in one piece, and hashing them at once takes half as long.
      if (piece.length === current?.stored) current.sha256 = hash("sha256", piece);
      else (hashing ??= createHash("sha256")).update(piece);
      this.#entryBytes += piece.length;
    };
    return {
      entry: (/** @type {TarEntry} */ entry, /** @type {Buffer} */ headers) => {
        current = Object.assign(entry, {
          at: this.#written,
          dataAt: this.#written + headers.length,
          sha256: entry.type === "file" ? sha256OfNothing() : "",
          ...(markNow && entry.type === "file" && { mark: markNow() }),
        });
        hashing = undefined;
        take(headers);
      },
      space: (/** @type {number} */ bytes) => this.#frames.space(bytes),
      filled: (/** @type {number} */ bytes) => {
        this.#written += bytes;
        this.#frames.filled(bytes);
      },
      read: note,
      content: (/** @type {Buffer} */ piece) => {
        note(piece);
        take(piece);
      },
      padding: take,
      entryEnd: () => {
        if (current === undefined) return;
        this.#entries++;
        this.#entryBytes = 0;
        this.#contentBytes += current.size;
        if (hashing) current.sha256 = hashing.digest("hex");
        this.#index.add(current);
      },
    };
  }

  /** A promise that must be awaited before more is read, if any. */
  #room() {
    this.#report(this.#contentBytes + this.#entryBytes);
    return this.#frames.room();
  }

  /** @param {string} warning */
  #warn(warning) {
    if (this.#warnings.length < maxWarnings) this.#warnings.push(warning);
  }
}

/**
 * @param {{ indexBytes: number, indexSha256: string }} since
 * @param {import("./byte-source.mjs").ByteSource} source
 */
async function takeMarked({ indexBytes, indexSha256 }, source) {
  const index = await source.take(indexBytes);
  if (sha256(index).toString("hex") !== indexSha256) throw damaged("is damaged in its index");
  return markedFiles(index);
}
