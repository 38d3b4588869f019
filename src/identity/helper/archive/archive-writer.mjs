/**
 * Trees of an app as an archive: tar(1) reads them, which knows holes, hard links, extended attributes and lists of access
 * rights; what it writes is cut into zstd frames, and each entry is noted in the index. See docs/backup-format.md.
 */
import { createHash, hash } from "node:crypto";
import { Readable } from "node:stream";
import { inDirectory } from "../directory.mjs";
import { LineSplitter } from "../output.mjs";
import { runToEnd } from "../run-command.mjs";
import { reopen } from "../directory.mjs";
import { toolFailure } from "../tool-failure.mjs";
import { FrameWriter, sha256 } from "./frames.mjs";
import { IndexWriter } from "./entry-index.mjs";
import { hasCode } from "../request-error.mjs";
import { runInSlices } from "../slices.mjs";
import { excluder } from "./exclude-patterns.mjs";
import { markedFiles, markOf, settle, walkFiles } from "./file-marks.mjs";
import { damaged, TarReader } from "./tar-reader.mjs";
import { VolumeTar } from "./volume-tar.mjs";

const sha256OfNothing = hash("sha256", "");
const endOfTar = Buffer.alloc(1024);
const maxWarnings = 100;
const keptComplaints = 20;
const progressMs = 100;
const namesAtOnce = 1_000;
/** Of a zstd skippable frame: its magic number and the length of what is in it. */
const skippablePrefixBytes = 8;
const skippableMagic = 0x184d2a5a;
const maxSkippableBytes = 2 ** 32 - 1;

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */
/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */

/**
 * @typedef {object} LookedAt
 * @property {Map<string, string>} marks
 * @property {IndexedEntry[]} same What has not changed since the archive before.
 * @property {string[] | undefined} names All else; undefined when all of it is read.
 */

/**
 * @typedef {object} WriteArchiveArgs
 * @property {string} root
 * @property {string[]} trees Paths beneath the root; what is not there is passed over.
 * @property {string[]} excludes Patterns of tar(1) for paths from the root, such as `data/cache/*`.
 * @property {{ tree: string, excludes: string[] }[]} volumes Of the container engine, whose tars come as input; patterns for
 *   paths in the volume.
 * @property {boolean} marks Files get what tells later whether they have changed.
 * @property {{ indexBytes: number, indexSha256: string } | null} since The index of an archive with marks, which comes first in the
 *   input: files that have not changed since are named alone.
 * @property {string[]} unmarked Paths of files that always have their content.
 * @property {string} runId
 */

/** What was written: frames, then the index and the table of the frames, each in a skippable frame. */
export class ArchiveWriter {
  #frames;
  #index = new IndexWriter();
  #output;
  #report;
  #reportedMs = 0;
  #written = 0;
  #entries = 0;
  #contentBytes = 0;
  /** Of the entry that is not whole yet. */
  #entryBytes = 0;
  /** @type {string[]} */
  #warnings = [];

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
   * @param {import("./byte-source.mjs").ByteSource} source The volumes, as {@link VolumeTar.read} takes them.
   * @param {AbortSignal} signal
   */
  async write({ root, trees, excludes, volumes, marks, since, unmarked, runId }, source, signal) {
    const before = since && (await takeMarked(since, source));
    await inDirectory({ root, path: "." }, async (fd) => {
      for (const tree of trees) {
        const looked =
          marks || before
            ? await this.#look(fd, tree, { excludes, before, unmarked, runId }, signal)
            : undefined;
        if (before && looked === undefined) continue;
        await this.#tree(fd, tree, excludes, runId, signal, looked);
      }
    });
    for (const volume of volumes) await this.#volume(volume, source);
    this.#frames.write(endOfTar);
    await this.#frames.end();
    const index = await this.#index.end();
    const table = this.#frames.table();
    const framesBytes = this.#frames.storedBytes;
    await this.#skippable(index);
    await this.#skippable(table);
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
   * What a tree has before it is read; nothing where it is not there.
   * @param {number} directory
   * @param {string} tree
   * @param {{ excludes: string[], before: Map<string, IndexedEntry> | null, unmarked: string[], runId: string }} options
   * @param {AbortSignal} signal
   * @returns {Promise<LookedAt | undefined>}
   */
  async #look(directory, tree, { excludes, before, unmarked, runId }, signal) {
    const root = toLatin1(tree);
    /** @type {LookedAt} */
    const looked = { marks: new Map(), same: [], names: before ? [root] : undefined };
    const never = new Set(unmarked.map(toLatin1));
    let settledMs = 0;
    const take = (/** @type {string} */ path, /** @type {import("node:fs").BigIntStats} */ stat) => {
      const mark = never.has(path) ? "" : markOf(stat);
      const known = before?.get(path);
      if (mark !== "" && known?.mark === mark) looked.same.push(known);
      else {
        looked.names?.push(path);
        if (mark !== "" && Number(stat.ctimeMs) < settledMs) looked.marks.set(path, mark);
      }
    };
    try {
      const place = { root: reopen(directory), path: tree };
      await inDirectory(place, async (fd) => {
        if (!before) settledMs = await settle(fd, runId, signal);
        await runInSlices(walkFiles(fd, root, excluder(excludes), take), signal);
      });
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
    return looked;
  }

  /**
   * @param {number} directory
   * @param {string} tree
   * @param {string[]} excludes
   * @param {string} runId
   * @param {AbortSignal} signal
   * @param {LookedAt} [looked]
   */
  async #tree(directory, tree, excludes, runId, signal, looked) {
    let keeps = true;
    const handler = this.#handler(looked?.marks);
    const names = looked?.names;
    const reader = new TarReader({
      entry: (entry, headers) => {
        keeps = entry.type !== "device";
        if (keeps) handler.entry(entry, headers);
        else this.#warn(`${entry.path} is a device and was left out`);
      },
      content: handler.content,
      padding: handler.padding,
      entryEnd: () => keeps && handler.entryEnd(),
    });
    const complaints = new Complaints();
    const splitter = new LineSplitter();
    const { exitCode } = await runToEnd(
      {
        argv: names
          ? ["tar", ...createOptions, "--no-recursion", "--null", "--files-from=-"]
          : ["tar", ...createOptions, ...excludes.map((pattern) => `--exclude=${pattern}`), "--", tree],
        cwd: reopen(directory),
        env: { LC_ALL: "C", PATH: process.env["PATH"] ?? "" },
        umask: 0o077,
        runId,
      },
      {
        whole: true,
        ...(names && { stdin: Readable.from(nameLists(names)) }),
        stdout: () => undefined,
        wide: (piece) => {
          reader.push(piece);
          return this.#room();
        },
        stderr: (chunk) => complaints.add(splitter.push(chunk)),
      },
      signal,
    );
    complaints.add(splitter.end());
    // 1: some files changed while they were read.
    if (exitCode !== 0 && exitCode !== 1) {
      if (complaints.isMissing(tree)) return;
      throw toolFailure("tar", complaints.last.join("\n"));
    }
    if (!reader.ended) throw toolFailure("tar", "what it wrote was cut short");
    for (const line of complaints.first) this.#warn(line);
    for (const entry of looked?.same ?? []) {
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
   * Notes entries as they go by.
   * @param {ReadonlyMap<string, string>} [marks] Of files, by their paths.
   */
  #handler(marks) {
    /** @type {import("node:crypto").Hash | undefined} */
    let hashing;
    /** @type {IndexedEntry | undefined} */
    let current;
    const take = (/** @type {Buffer} */ piece) => {
      this.#written += piece.length;
      this.#frames.write(piece);
    };
    return {
      entry: (/** @type {TarEntry} */ entry, /** @type {Buffer} */ headers) => {
        current = Object.assign(entry, {
          at: this.#written,
          dataAt: this.#written + headers.length,
          sha256: entry.type === "file" ? sha256OfNothing : "",
        });
        hashing = undefined;
        take(headers);
      },
      content: (/** @type {Buffer} */ piece) => {
        // Most files are in one piece, and this way takes half as long for them.
        if (piece.length === current?.stored) current.sha256 = hash("sha256", piece);
        else (hashing ??= createHash("sha256")).update(piece);
        this.#entryBytes += piece.length;
        take(piece);
      },
      padding: take,
      entryEnd: () => {
        if (current === undefined) return;
        this.#entries++;
        this.#entryBytes = 0;
        this.#contentBytes += current.size;
        if (hashing) current.sha256 = hashing.digest("hex");
        const mark = marks?.get(current.path);
        if (mark !== undefined) current.mark = mark;
        this.#index.add(current);
      },
    };
  }

  /** To be waited for, where there is something, before more is read. */
  #room() {
    this.#tell();
    return this.#frames.room();
  }

  /** @param {string} warning */
  #warn(warning) {
    if (this.#warnings.length < maxWarnings) this.#warnings.push(warning);
  }

  #tell() {
    const nowMs = performance.now();
    if (nowMs - this.#reportedMs < progressMs) return;
    this.#reportedMs = nowMs;
    this.#report(this.#contentBytes + this.#entryBytes);
  }
}

/** Blocks of 512 bytes that tar(1) writes at once. */
const recordBlocks = 1024;

const createOptions = [
  "--create",
  "--format=posix",
  "--pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f",
  "--numeric-owner",
  "--sparse",
  "--acls",
  "--xattrs",
  "--xattrs-include=user.*",
  "--anchored",
  "--wildcards",
  `--blocking-factor=${recordBlocks}`,
  "--file=-",
];

/**
 * Names as `--null --files-from` takes them, many at a time.
 * @param {readonly string[]} names
 */
function* nameLists(names) {
  for (let from = 0; from < names.length; from += namesAtOnce) {
    yield Buffer.from(`${names.slice(from, from + namesAtOnce).join("\0")}\0`, "latin1");
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

/** @param {string} name */
function toLatin1(name) {
  return Buffer.from(name).toString("latin1");
}

/** The first lines that tar(1) complains in, and the last ones. */
class Complaints {
  /** @type {string[]} */
  first = [];
  /** @type {string[]} */
  last = [];

  /** @param {string[]} lines */
  add(lines) {
    for (const line of lines) {
      const readable = line.replace(/^tar: /, "");
      if (this.first.length < maxWarnings) this.first.push(readable);
      this.last.push(readable);
      if (this.last.length > keptComplaints) this.last.shift();
    }
  }

  /**
   * Whether the tree is not there, and nothing else is wrong.
   * @param {string} tree
   */
  isMissing(tree) {
    return this.first[0] === `${tree}: Cannot stat: No such file or directory` && this.first.length <= 2;
  }
}
