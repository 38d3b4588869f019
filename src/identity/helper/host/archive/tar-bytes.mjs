/** A tar as POSIX.1-2001 has it: plain headers, and an extended one for what does not fit into them. */
import { readlinkSync } from "node:fs";
import { at } from "../../directory.mjs";

const blockBytes = 512;
const endOfTar = Buffer.alloc(2 * blockBytes);
const maxNameBytes = 100;
/** The largest numbers of eight and of twelve octal digits with what ends them. */
const maxShort = 0o7777777;
const maxLong = 0o77777777777;

/** @typedef {import("./pack.mjs").PackSource} PackSource */
/** @typedef {import("../tree-entries.mjs").TreeEntry} TreeEntry */

/**
 * @typedef {object} Header
 * @property {string} path
 * @property {string} type
 * @property {string} target
 * @property {number} size
 * @property {number} mode
 * @property {number} uid
 * @property {number} gid
 * @property {number} mtime Whole seconds.
 * @property {string} [exactMtime] Where it is none of those: seconds with a fraction, or from before 1970.
 */

/**
 * @param {PackSource} source
 * @param {string[]} paths
 * @returns {AsyncGenerator<Buffer, void, void>}
 */
export async function* tarBytes(source, paths) {
  /** The first names of files with several links. @type {Map<string, string>} */
  const linked = new Map();
  for (const path of paths) {
    for await (const entry of source.entries(path)) {
      const { stats } = entry;
      const name = entry.path.join("/");
      const key = stats.nlink > 1n && !stats.isDirectory() ? `${stats.dev}:${stats.ino}` : "";
      const first = key === "" ? undefined : linked.get(key);
      if (first !== undefined) {
        yield headers({ ...common(entry, name), type: "1", target: first, size: 0 });
        continue;
      }
      if (key !== "") linked.set(key, name);
      if (stats.isDirectory()) {
        yield headers({ ...common(entry, `${name}/`), type: "5", target: "", size: 0 });
      } else if (stats.isSymbolicLink()) {
        const target = readlinkSync(at(entry.parent, entry.name), "latin1");
        yield headers({ ...common(entry, name), type: "2", target, size: 0 });
      } else {
        const size = Number(stats.size);
        yield headers({ ...common(entry, name), type: "0", target: "", size });
        yield* source.bytesOf(entry);
        yield padding(size);
      }
    }
  }
  yield endOfTar;
}

/**
 * @param {TreeEntry} entry
 * @param {string} path
 */
function common({ stats }, path) {
  return {
    path,
    mode: Number(stats.mode) & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    mtime: Math.max(0, Number(stats.mtimeNs / 1_000_000_000n)),
  };
}

/** @param {Header} header */
export function headers(header) {
  const records = [
    ...(header.path.length > maxNameBytes ? [record("path", header.path)] : []),
    ...(header.target.length > maxNameBytes ? [record("linkpath", header.target)] : []),
    ...(header.size > maxLong ? [record("size", String(header.size))] : []),
    ...(header.uid > maxShort ? [record("uid", String(header.uid))] : []),
    ...(header.gid > maxShort ? [record("gid", String(header.gid))] : []),
    ...(header.exactMtime === undefined ? [] : [record("mtime", header.exactMtime)]),
  ];
  const own = block(header);
  if (records.length === 0) return own;
  const content = Buffer.from(records.join(""), "latin1");
  const extended = block({
    ...header,
    path: "PaxHeader",
    type: "x",
    target: "",
    size: content.length,
    mode: 0o644,
  });
  return Buffer.concat([extended, content, padding(content.length), own]);
}

/**
 * `LENGTH KEY=VALUE\n`, the length in decimal and of the whole record.
 * @param {string} key
 * @param {string} value
 */
function record(key, value) {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return `${length}${rest}`;
}

/** @param {Header} header */
function block({ path, type, target, size, mode, uid, gid, mtime }) {
  const bytes = Buffer.alloc(blockBytes);
  const number = (/** @type {number} */ value, /** @type {number} */ start, /** @type {number} */ length) => {
    const fits = value < 8 ** (length - 1) ? value : 0;
    bytes.write(`${fits.toString(8).padStart(length - 1, "0")}\0`, start, "latin1");
  };
  bytes.write(path.slice(0, maxNameBytes), 0, "latin1");
  number(mode, 100, 8);
  number(uid, 108, 8);
  number(gid, 116, 8);
  number(size, 124, 12);
  number(mtime, 136, 12);
  bytes.write(" ".repeat(8), 148, "latin1");
  bytes.write(type, 156, "latin1");
  bytes.write(target.slice(0, maxNameBytes), 157, "latin1");
  bytes.write("ustar\u000000", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}

/** @param {number} size */
export function padding(size) {
  return Buffer.alloc((blockBytes - (size % blockBytes)) % blockBytes);
}
