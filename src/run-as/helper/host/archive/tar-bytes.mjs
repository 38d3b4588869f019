/** Writes a tar of POSIX.1-2001: plain headers, and an extended header for values that do not fit. */
import { readlinkSync } from "node:fs";
import { paddingBytes } from "../../archive/tar-reader.mjs";
import { at } from "../../directory.mjs";

const blockBytes = 512;
const endOfTar = Buffer.alloc(2 * blockBytes);
const maxNameBytes = 100;
/** The largest numbers of 7 and of 11 octal digits. */
const maxShort = 0o7777777;
const maxLong = 0o77777777777;
const second = 1_000_000_000n;

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
 * @property {number} mtime whole seconds
 * @property {string} [exactMtime] the time if `mtime` cannot express it: seconds with a fraction, or before 1970
 * @property {[string, string][]} [records] further records of an extended header
 * @property {boolean} [isNamed] whether the records contain the path
 */

/**
 * @param {PackSource} source
 * @param {string[]} paths
 * @returns {AsyncGenerator<Buffer, void, void>}
 */
export async function* tarBytes(source, paths) {
  /** The first name of each file with several links. @type {Map<string, string>} */
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
  const [mtime, exactMtime] = timeOf(stats.mtimeNs);
  return {
    path,
    mode: Number(stats.mode) & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    mtime,
    ...(exactMtime !== undefined && { exactMtime }),
  };
}

/**
 * Returns whole seconds, and the time as text if it is not whole or does not fit into a header.
 * @param {bigint} nanoseconds
 * @returns {[number, string | undefined]}
 */
export function timeOf(nanoseconds) {
  const isBefore = nanoseconds < 0n;
  const distance = isBefore ? -nanoseconds : nanoseconds;
  const seconds = distance / second;
  const rest = distance % second;
  if (!isBefore && rest === 0n && seconds <= BigInt(maxLong)) return [Number(seconds), undefined];
  const fraction = rest === 0n ? "" : `.${String(rest).padStart(9, "0").replace(/0+$/, "")}`;
  const plain = isBefore || seconds > BigInt(maxLong) ? 0 : Number(seconds);
  return [plain, `${isBefore ? "-" : ""}${seconds}${fraction}`];
}

/** @param {Header} header */
export function headers(header) {
  const { path, target, size, uid, gid, exactMtime } = header;
  let records = "";
  if (path.length > maxNameBytes && header.isNamed !== true) records += record("path", path);
  if (target.length > maxNameBytes) records += record("linkpath", target);
  if (size > maxLong) records += record("size", String(size));
  if (uid > maxShort) records += record("uid", String(uid));
  if (gid > maxShort) records += record("gid", String(gid));
  if (exactMtime !== undefined) records += record("mtime", exactMtime);
  for (const [key, value] of header.records ?? []) records += record(key, value);
  if (records === "") return block(Buffer.alloc(blockBytes), header);
  const contentBytes = records.length + paddingBytes(records.length);
  const bytes = Buffer.alloc(blockBytes + contentBytes + blockBytes);
  const extended = { path: "PaxHeader", type: "x", target: "", size: records.length, mode: 0o644 };
  block(bytes, { ...extended, uid, gid, mtime: header.mtime });
  bytes.write(records, blockBytes, "latin1");
  block(bytes.subarray(blockBytes + contentBytes), header);
  return bytes;
}

/**
 * `LENGTH KEY=VALUE\n`: the length of the whole record in decimal.
 * @param {string} key
 * @param {string} value
 */
function record(key, value) {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return `${length}${rest}`;
}

/**
 * @param {Buffer} bytes filled with zeros
 * @param {Header} header
 */
function block(bytes, { path, type, target, size, mode, uid, gid, mtime }) {
  bytes.write(path, 0, maxNameBytes, "latin1");
  octal(bytes, mode, 100, 8);
  octal(bytes, uid, 108, 8);
  octal(bytes, gid, 116, 8);
  octal(bytes, size, 124, 12);
  octal(bytes, mtime, 136, 12);
  bytes.write(type, 156, 1, "latin1");
  bytes.write(target, 157, maxNameBytes, "latin1");
  bytes.write("ustar\u000000", 257, "latin1");
  sumUp(bytes);
  return bytes;
}

/**
 * @param {Buffer} block the header block of an entry
 * @param {number} mode
 */
export function setMode(block, mode) {
  octal(block, mode, 100, 8);
  sumUp(block);
}

/** @param {Buffer} block the checksum field counts as blanks */
function sumUp(block) {
  block.fill(0x20, 148, 156);
  let sum = 0;
  for (let index = 0; index < blockBytes; index++) sum += block[index] ?? 0;
  octal(block, sum, 148, 7);
}

/**
 * Writes octal digits and a NUL; 0 if the value does not fit and is in an extended header.
 * @param {Buffer} bytes
 * @param {number} value
 * @param {number} start
 * @param {number} length
 */
function octal(bytes, value, start, length) {
  let remaining = value < 8 ** (length - 1) ? value : 0;
  bytes[start + length - 1] = 0;
  for (let index = start + length - 2; index >= start; index--) {
    bytes[index] = 0x30 + (remaining % 8);
    remaining = Math.floor(remaining / 8);
  }
}

/** @param {number} size */
export function padding(size) {
  return Buffer.alloc(paddingBytes(size));
}
