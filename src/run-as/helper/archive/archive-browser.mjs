/** Reads an archive without unpacking it: only its index, or the frames of one file. */
import { toLatin1 } from "../directory.mjs";
import { admittedEntries, EntryCheck, isSelected, takeTables } from "./archive-reader.mjs";
import { FrameCursor } from "./frame-cursor.mjs";
import { SparseExpander } from "./sparse-expander.mjs";
import { damaged } from "./tar-reader.mjs";

/** @typedef {import("./byte-source.mjs").ByteSource} ByteSource */
/** @typedef {import("./archive-reader.mjs").ReadArchiveArgs} ReadArchiveArgs */
/** @typedef {import("./entry-index.mjs").IndexedEntry} IndexedEntry */
/** @typedef {Pick<ReadArchiveArgs, "sizes" | "uid" | "trees">} Described */

/** Maximum chain of hard links to hard links. tar(1) writes none, so longer chains are malicious. */
const maxLinks = 8;

/**
 * Lists the direct entries of a directory. For the root, and for directories between it and the trees, lists all trees
 * below.
 * @param {Described & { directory: string, after: number, limit: number }} args `after`: entries to skip
 * @param {ByteSource} source the index and the table
 */
export async function browse({ directory, after, limit, ...described }, source) {
  const { index } = await takeTables(described.sizes, source);
  const selected = toLatin1(directory);
  const entries = [];
  let [seen, found] = [0, isAboveTrees(selected, described.trees)];
  for await (const { entry } of admittedEntries(index, described)) {
    if (entry.path === selected) found = entry.type === "directory";
    if (!isChild(entry.path, selected, described.trees)) continue;
    seen++;
    if (seen > after && entries.length < limit) entries.push(shownEntry(entry));
  }
  if (!found) throw Object.assign(new Error("no such directory"), { code: "ENOENT" });
  return { entries, more: seen > after + limit };
}

/**
 * @param {string} path
 * @param {string} directory
 * @param {string[]} trees
 */
function isChild(path, directory, trees) {
  if (isAboveTrees(directory, trees)) {
    return (directory === "" || isInside(path, directory)) && trees.some((tree) => path === toLatin1(tree));
  }
  return path.startsWith(`${directory}/`) && !path.slice(directory.length + 1).includes("/");
}

/**
 * Whether a directory is the root or a parent of a tree: an archive has no entry for those.
 * @param {string} directory
 * @param {string[]} trees
 */
function isAboveTrees(directory, trees) {
  return directory === "" || trees.some((tree) => isInside(toLatin1(tree), directory));
}

/**
 * @param {string} path
 * @param {string} directory
 */
function isInside(path, directory) {
  return path.startsWith(`${directory}/`);
}

/**
 * Finds the frames that contain these paths and everything below them.
 * @param {Described & { paths: string[] }} args
 * @param {ByteSource} source the index and the table
 */
export async function locate({ paths, ...described }, source) {
  const { index, rows } = await takeTables(described.sizes, source);
  const selected = paths.map(toLatin1);
  const missing = new Set(selected);
  /** @type {Set<number>} */
  const frames = new Set();
  let [entries, contentBytes, row] = [0, 0, 0];
  for await (const { entry, end } of admittedEntries(index, described)) {
    if (!isSelected(entry.path, selected)) continue;
    missing.delete(entry.path);
    entries++;
    contentBytes += entry.size;
    while (row > 0 && (rows[row]?.rawAt ?? 0) > entry.at) row--;
    for (let at = row; at < rows.length; at++) {
      const { rawAt, rawLength } = rows[at] ?? { rawAt: 0, rawLength: 0 };
      if (rawAt >= end) break;
      if (rawAt + rawLength <= entry.at) row = at + 1;
      else frames.add(at);
    }
  }
  const [first] = missing;
  if (first !== undefined) {
    const name = Buffer.from(first, "latin1").toString();
    throw Object.assign(new Error(`has no ${JSON.stringify(name)}`), { code: "ENOENT" });
  }
  return { frames: rows.filter(({ number }) => frames.has(number)), entries, contentBytes };
}

/**
 * Finds the content of a file. A hard link has the content of its target.
 * @param {Described & { path: string }} args
 * @param {ByteSource} source the index and the table
 */
export async function locateFile({ path, ...described }, source) {
  const { index, rows } = await takeTables(described.sizes, source);
  /** @type {Map<string, IndexedEntry>} */
  const links = new Map();
  let selected = toLatin1(path);
  // A link comes after its target.
  for await (const { entry } of admittedEntries(index, described)) {
    if (entry.type === "hardlink" || entry.path === selected) links.set(entry.path, entry);
  }
  let found = links.get(selected);
  for (let steps = 0; found?.type === "hardlink" && steps < maxLinks; steps++) {
    selected = found.target;
    found = links.get(selected);
    if (found) continue;
    for await (const { entry } of admittedEntries(index, described))
      if (entry.path === selected) found = entry;
  }
  if (!found) throw Object.assign(new Error("no such file"), { code: "ENOENT" });
  if (found.type !== "file") throw Object.assign(new Error("is not a regular file"), { code: "WRONG_TYPE" });
  const end = found.dataAt + found.stored;
  const { at, size } = found;
  const frames = rows.filter((row) => row.rawAt < end && row.rawAt + row.rawLength > at);
  return { path: Buffer.from(found.path, "latin1").toString("base64"), size, frames };
}

/**
 * Reads and verifies the content of a file.
 * @param {Described & { path: string, frames: number[] }} args `path` as returned by {@link locateFile}
 * @param {ByteSource} source the index, the table, then the file's frames
 * @param {(bytes: Buffer) => Promise<void>} output
 */
export async function readFileOf({ path, frames, ...described }, source, output) {
  const { index, rows } = await takeTables(described.sizes, source);
  const selected = Buffer.from(path, "base64").toString("latin1");
  /** @type {{ entry: IndexedEntry, end: number } | undefined} */
  let found;
  for await (const each of admittedEntries(index, described)) if (each.entry.path === selected) found = each;
  if (!found) throw damaged("has no such file");
  const { entry, end } = found;
  const cursor = new FrameCursor(
    rows.filter(({ number }) => frames.includes(number)),
    source,
  );
  const check = new EntryCheck();
  check.expect(entry);
  const expander = entry.sparse ? new SparseExpander(entry, output) : undefined;
  for (let position = entry.at; position < end;) {
    const bytes = await partOf(cursor, position, end, entry.dataAt + entry.stored);
    position += bytes.length;
    for (const piece of check.contentOf(bytes)) await (expander ? expander.push(piece) : output(piece));
  }
  await expander?.end();
  check.finish();
}

/**
 * Returns the bytes at a position. The padding after the content may be in another frame, which is not needed.
 * @param {FrameCursor} cursor
 * @param {number} position
 * @param {number} end
 * @param {number} contentEnd
 */
async function partOf(cursor, position, end, contentEnd) {
  if (position >= contentEnd) return Buffer.alloc(end - position);
  return (await cursor.from(position)).subarray(0, end - position);
}

/** @param {IndexedEntry} entry */
function shownEntry({ path, type, size, mode, mtime, target, sha256 }) {
  return {
    path: readable(path),
    type: type === "fifo" || type === "device" ? "other" : type,
    size,
    mode,
    mtime,
    target: readable(target),
    sha256,
  };
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {string} name bytes that are not UTF-8 are written as `\xNN` */
function readable(name) {
  try {
    return utf8.decode(Buffer.from(name, "latin1"));
  } catch {
    return name.replaceAll(/[\u0080-\u00ff]/g, (byte) => String.raw`\x${byte.charCodeAt(0).toString(16)}`);
  }
}
