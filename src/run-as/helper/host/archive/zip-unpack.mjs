/** Unpacks a zip by its central directory (yauzl), and verifies the content's sizes and checksums against it. */
import { createRequire } from "node:module";
import { crc32 } from "node:zlib";
import { RequestError } from "../../request-error.mjs";
import { decodedName } from "./name-encoding.mjs";
import { refused } from "./unpack-sink.mjs";

const maxTargetBytes = 4096;
/** Creator of an entry whose upper attribute bits are a Unix mode. */
const madeByUnix = 3;
const typeBits = 0o170000;
/** Flag of names that are UTF-8. */
const utf8Flag = 0x800;
/** Extra field with the name as UTF-8 (APPNOTE 4.6.9). */
const unicodePathField = 0x7075;
/** @type {ReadonlyMap<number, "file" | "directory" | "symlink">} */
const types = new Map([
  [0o100000, "file"],
  [0o040000, "directory"],
  [0o120000, "symlink"],
]);

/** @typedef {import("./unpack-sink.mjs").UnpackSink} UnpackSink */
/** @typedef {import("./unpack-sink.mjs").UnpackedEntry} UnpackedEntry */
/** @typedef {import("yauzl").Entry} Entry */
/** @typedef {import("yauzl").ZipFile} ZipFile */

/**
 * @param {import("node:fs/promises").FileHandle} file
 * @param {string} nameEncoding of names that are not UTF-8
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step called repeatedly: lets other requests run, and throws on cancellation
 */
export async function unpackZip(file, nameEncoding, sink, budget, step) {
  /** @type {typeof import("yauzl")} */
  const yauzl = createRequire(import.meta.url)("yauzl");
  const options = { autoClose: false, lazyEntries: true, decodeStrings: false, validateEntrySizes: true };
  const zip = await yauzl.fromFdPromise(file.fd, options).catch(throwRejected);
  const entries = zip.eachEntry();
  for (;;) {
    const next = await entries.next().catch(throwRejected);
    if (next.done) return;
    await unpackEntry(zip, next.value, nameEncoding, sink, budget, step);
    await step();
  }
}

/**
 * @param {ZipFile} zip
 * @param {Entry} entry
 * @param {string} nameEncoding
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step called repeatedly: lets other requests run, and throws on cancellation
 */
async function unpackEntry(zip, entry, nameEncoding, sink, budget, step) {
  const unpacked = describe(entry, nameEncoding);
  const { path, type } = unpacked;
  if (entry.isEncrypted()) throw refused(path, "is encrypted");
  if (!entry.canDecodeFileData()) throw refused(path, "uses an unsupported compression method");
  if (type !== "symlink") sink.begin(unpacked);
  if (type === "directory") return;
  const pieces = [];
  let sum = 0;
  let length = 0;
  const content = await zip.openReadStreamPromise(entry).catch(throwRejected);
  try {
    for await (const piece of /** @type {AsyncIterable<Buffer>} */ (content)) {
      await step();
      budget.passBytes(piece.length);
      sum = crc32(piece, sum);
      length += piece.length;
      if (type === "file") sink.write(piece);
      else if (length <= maxTargetBytes) pieces.push(piece);
    }
  } catch (error) {
    // The header and the content disagree.
    if (!(error instanceof Error) || "code" in error || error.name === "AbortError") throw error;
    throw refused(path, "does not match its header");
  }
  if (sum !== entry.crc32 || length !== entry.uncompressedSize)
    throw refused(path, "does not match its header");
  if (type === "file") sink.end();
  else {
    if (length > maxTargetBytes) throw refused(path, "is a link without a target");
    sink.begin({ ...unpacked, target: Buffer.concat(pieces).toString("latin1") });
  }
}

/**
 * @param {Entry} entry
 * @param {string} nameEncoding
 * @returns {UnpackedEntry}
 */
function describe(entry, nameEncoding) {
  const path = pathOf(entry, nameEncoding);
  const attributes = entry.versionMadeBy >>> 8 === madeByUnix ? entry.externalFileAttributes >>> 16 : 0;
  const isDirectory = path.endsWith("/");
  const type = (attributes & typeBits) === 0 ? "file" : types.get(attributes & typeBits);
  if (type === undefined) throw refused(path, "is not a file, directory or link");
  return {
    path,
    type: isDirectory ? "directory" : type,
    target: "",
    mode: attributes & 0o7777 || (isDirectory ? 0o755 : 0o644),
    mtime: String(Math.trunc(entry.getLastModDate().getTime() / 1000) || 0),
  };
}

/**
 * @param {Entry} entry
 * @param {string} nameEncoding
 * @returns {string} one character per byte
 */
function pathOf(entry, nameEncoding) {
  const raw = entry.fileNameRaw.toString("latin1");
  const isUtf8 = (entry.generalPurposeBitFlag & utf8Flag) !== 0;
  // Some programs for Windows write backslashes, although only slashes are allowed (APPNOTE 4.4.17).
  const path = (isUtf8 ? raw : (unicodePath(entry) ?? decodedName(raw, nameEncoding))).replaceAll("\\", "/");
  if (/^[a-z]:/i.test(path) && raw.includes("\\")) throw refused(path, "is outside of the archive");
  return path;
}

/**
 * The name in the field for Unicode, unless the entry was renamed after the field was written.
 * @param {Entry} entry
 */
function unicodePath({ extraFields, fileNameRaw }) {
  const data = extraFields.find(({ id }) => id === unicodePathField)?.data;
  if (data === undefined || data.length < 6 || data[0] !== 1) return undefined;
  return data.readUInt32LE(1) === crc32(fileNameRaw) ? data.toString("latin1", 5) : undefined;
}

/**
 * @param {unknown} error
 * @returns {never}
 */
function throwRejected(error) {
  if (!(error instanceof Error) || "code" in error) throw error;
  throw new RequestError("REFUSED", `is not a readable zip: ${error.message}`);
}
