/**
 * Reads an archive: every frame, entry and content is verified against the archive's tables, entries that lead outside
 * of the directory are rejected, and the rest is unpacked with tar(1).
 */
import { createHash } from "node:crypto";
import { toLatin1 } from "../directory.mjs";
import { readIndex } from "./entry-index.mjs";
import { EntryGuard } from "./entry-guard.mjs";
import { FrameCursor, readTable } from "./frame-cursor.mjs";
import { sha256 } from "./frames.mjs";
import { damaged, TarReader } from "./tar-reader.mjs";
import { TarSink } from "./tar-sink.mjs";
import { VolumeSink } from "./volume-tar.mjs";

const blockBytes = 512;
const endOfTarBytes = 1024;

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */
/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */
/** @typedef {import("./byte-source.mjs").ByteSource} ByteSource */

/**
 * @typedef {object} ArchiveSizes Sizes and hashes from the end of an archive.
 * @property {number} indexBytes
 * @property {string} indexSha256
 * @property {number} tableBytes
 * @property {string} tableSha256
 * @property {number} tarBytes
 * @property {number} entries
 * @property {number} contentBytes
 */

/**
 * @typedef {object} ReadArchiveArgs
 * @property {ArchiveSizes} sizes
 * @property {number} uid the owner of the files
 * @property {string[]} trees the paths below which entries must be
 * @property {{ root: string, into: (string | null)[], base?: (string | null)[] }} [target] for each tree a directory
 *   below the root to unpack to, or null if {@link VolumeSink} sends it to the daemon. `base` has the unpacked previous
 *   archive, for unchanged files. Default: only verify
 * @property {string[]} paths only these and everything below them; empty: everything
 * @property {number[]} [frames] numbers of the frames in the input; default: all
 * @property {string} runId
 */

/**
 * @param {ArchiveSizes} sizes
 * @param {ByteSource} source
 */
export async function takeTables(sizes, source) {
  const index = await source.take(sizes.indexBytes);
  const table = await source.take(sizes.tableBytes);
  if (sha256(index).toString("hex") !== sizes.indexSha256) throw damaged("is damaged in its index");
  if (sha256(table).toString("hex") !== sizes.tableSha256) throw damaged("is damaged in its table of frames");
  return { index, rows: readTable(table, sizes.tarBytes) };
}

/**
 * Yields the entries of an index. Each is admitted; gaps between them are rejected.
 * @param {Buffer} index
 * @param {Pick<ReadArchiveArgs, "sizes" | "trees" | "uid">} args
 * @returns {AsyncGenerator<{ entry: IndexedEntry, tree: number, end: number }, void, void>}
 */
export async function* admittedEntries(index, { sizes, trees, uid }) {
  const guard = new EntryGuard(trees.map(toLatin1), uid);
  let [position, count, contentBytes] = [0, 0, 0];
  for await (const entry of readIndex(index)) {
    const tree = guard.admit(entry);
    const end = entry.dataAt + Math.ceil(entry.stored / blockBytes) * blockBytes;
    const isRight = entry.same
      ? entry.type === "file" && entry.dataAt === entry.at && entry.stored === 0
      : entry.dataAt > entry.at;
    if (entry.at !== position || !isRight) throw damaged("has an index with gaps");
    position = end;
    count++;
    if (!entry.same) contentBytes += entry.size;
    yield { entry, tree, end };
  }
  const isWhole =
    count === sizes.entries &&
    contentBytes === sizes.contentBytes &&
    position + endOfTarBytes === sizes.tarBytes;
  if (!isWhole) throw damaged("has an index that disagrees with its end");
}

/**
 * Whether a path equals a selected path, is below one, or is a parent of one.
 * @param {string} path
 * @param {string[]} selected
 */
export function isSelected(path, selected) {
  return (
    selected.length === 0 ||
    selected.some((each) => path === each || path.startsWith(`${each}/`) || each.startsWith(`${path}/`))
  );
}

export class ArchiveReader {
  #args;
  #source;
  #output;
  #signal;
  #report;
  #contentBytes = 0;
  #entries = 0;

  /**
   * @param {ReadArchiveArgs} args
   * @param {ByteSource} source the index, the table, then frames
   * @param {(bytes: Buffer) => Promise<void>} output
   * @param {AbortSignal} signal
   * @param {(doneBytes: number) => void} report
   */
  constructor(args, source, output, signal, report) {
    this.#args = args;
    this.#source = source;
    this.#output = output;
    this.#signal = signal;
    this.#report = report;
  }

  async read() {
    const { sizes, target, trees, frames, runId, uid } = this.#args;
    const { index, rows } = await takeTables(sizes, this.#source);
    const chosen = frames === undefined ? rows : rows.filter(({ number }) => frames.includes(number));
    const sameOwner = process.geteuid?.() === 0 && uid === 0;
    const names = trees.map(toLatin1);
    const into = target?.into.map((directory) => directory ?? "") ?? [];
    const files = target && new TarSink({ ...target, into }, names, { runId, sameOwner }, this.#signal);
    const volumes = target?.into.includes(null) ? new VolumeSink(names, this.#output) : undefined;
    const cursor = new FrameCursor(chosen, this.#source);
    try {
      await this.#readEntries(index, cursor, (tree) => (target?.into[tree] === null ? volumes : files));
      await files?.finish();
      await volumes?.finish();
    } catch (error) {
      await files?.abort(error);
      throw error;
    }
    return { contentBytes: this.#contentBytes, entries: this.#entries };
  }

  /**
   * @param {Buffer} index
   * @param {FrameCursor} cursor
   * @param {(tree: number) => TarSink | VolumeSink | undefined} sinkOf
   */
  async #readEntries(index, cursor, sinkOf) {
    const { sizes, frames } = this.#args;
    const selected = this.#args.paths.map(toLatin1);
    const check = new EntryCheck();
    for await (const { entry, tree, end } of admittedEntries(index, this.#args)) {
      this.#signal.throwIfAborted();
      if (!isSelected(entry.path, selected)) continue;
      const sink = sinkOf(tree);
      if (entry.same) {
        sink?.keep(tree, entry);
        this.#entries++;
        continue;
      }
      check.expect(entry);
      /** @type {Buffer[] | undefined} Bytes held until the header is verified. */
      let buffered = [];
      for (let position = entry.at; position < end;) {
        const bytes = (await cursor.from(position)).subarray(0, end - position);
        position += bytes.length;
        check.push(bytes);
        this.#report(this.#contentBytes + Math.min(Math.max(position - entry.dataAt, 0), entry.size));
        buffered?.push(bytes);
        if (!sink || !check.isKnown) continue;
        if (buffered) await sink.begin(tree, entry, Buffer.concat(buffered));
        else await sink.write(bytes);
        buffered = undefined;
      }
      check.finish();
      this.#entries++;
      this.#contentBytes += entry.size;
      this.#report(this.#contentBytes);
    }
    if (frames === undefined) {
      const end = await cursor.from(sizes.tarBytes - endOfTarBytes);
      if (end.some((byte) => byte !== 0)) throw damaged("does not end at the end of its index");
    }
    await cursor.finish();
  }
}

/** Compares the tar with its index, one entry at a time. */
export class EntryCheck {
  /** @type {IndexedEntry | undefined} */
  #expected;
  /** @type {import("node:crypto").Hash | undefined} */
  #hash;
  /** Whether the header has been read and is the expected one. */
  isKnown = false;
  #isDone = false;
  /** @type {Buffer[] | undefined} */
  #content;
  #reader = new TarReader({
    entry: (entry) => this.#begin(entry),
    content: (piece) => {
      this.#hash?.update(piece);
      this.#content?.push(piece);
    },
    padding: () => undefined,
    entryEnd: () => this.#end(),
  });

  /** @param {IndexedEntry} entry */
  expect(entry) {
    this.#expected = entry;
    this.#isDone = false;
    this.isKnown = false;
  }

  /** @param {Buffer} bytes */
  push(bytes) {
    this.#reader.push(bytes);
  }

  /**
   * Does the same, and returns the pieces of content in the bytes.
   * @param {Buffer} bytes
   */
  contentOf(bytes) {
    this.#content = [];
    this.#reader.push(bytes);
    return this.#content;
  }

  finish() {
    if (!this.#isDone || !this.#reader.between) throw this.#differs();
  }

  /** @param {TarEntry} entry */
  #begin(entry) {
    const { at: _at, dataAt: _dataAt, sha256: _sha256, ...expected } = this.#expected ?? {};
    const { at: _here, dataAt: _data, ...found } = entry;
    const isSame = Object.entries(found).every(
      ([key, value]) => value === /** @type {Record<string, unknown>} */ (expected)[key],
    );
    if (this.isKnown || !isSame) throw this.#differs();
    this.isKnown = true;
    this.#hash = entry.type === "file" ? createHash("sha256") : undefined;
  }

  #end() {
    if ((this.#hash?.digest("hex") ?? "") !== this.#expected?.sha256) throw this.#differs();
    this.#isDone = true;
  }

  #differs() {
    const shown = JSON.stringify(this.#expected?.path.slice(0, 256) ?? "");
    return damaged(`has a different ${shown} than its index`);
  }
}
