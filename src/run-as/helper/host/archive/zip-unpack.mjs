/** Unpacks a zip by its central directory (yauzl), and verifies the content's sizes and checksums against it. */
import { createRequire } from "node:module";
import { crc32 } from "node:zlib";
import { RequestError } from "../../request-error.mjs";
import { refused } from "./unpack-sink.mjs";

const maxTargetBytes = 4096;
/** Creator of an entry whose upper attribute bits are a Unix mode. */
const madeByUnix = 3;
const typeBits = 0o170000;
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
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step called repeatedly: lets other requests run, and throws on cancellation
 */
export async function unpackZip(file, sink, budget, step) {
  /** @type {typeof import("yauzl")} */
  const yauzl = createRequire(import.meta.url)("yauzl");
  const options = { autoClose: false, lazyEntries: true, decodeStrings: false, validateEntrySizes: true };
  const zip = await yauzl.fromFdPromise(file.fd, options).catch(throwRejected);
  const entries = zip.eachEntry();
  for (;;) {
    const next = await entries.next().catch(throwRejected);
    if (next.done) return;
    await unpackEntry(zip, next.value, sink, budget, step);
    await step();
  }
}

/**
 * @param {ZipFile} zip
 * @param {Entry} entry
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step called repeatedly: lets other requests run, and throws on cancellation
 */
async function unpackEntry(zip, entry, sink, budget, step) {
  const unpacked = describe(entry);
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
 * @returns {UnpackedEntry}
 */
function describe(entry) {
  // Not decoded: names are bytes, whatever encoding the archive declares.
  const path = entry.fileNameRaw.toString("latin1");
  const attributes = entry.versionMadeBy >>> 8 === madeByUnix ? entry.externalFileAttributes >>> 16 : 0;
  const isDirectory = path.endsWith("/");
  const type = (attributes & typeBits) === 0 ? "file" : types.get(attributes & typeBits);
  if (type === undefined) throw refused(path, "is not a file, directory or link");
  return {
    path,
    type: isDirectory ? "directory" : type,
    target: "",
    mode: attributes & 0o7777 || (isDirectory ? 0o755 : 0o644),
    mtimeSecs: entry.getLastModDate().getTime() / 1000,
  };
}

/**
 * @param {unknown} error
 * @returns {never}
 */
function throwRejected(error) {
  if (!(error instanceof Error) || "code" in error) throw error;
  throw new RequestError("REFUSED", `is not a readable zip: ${error.message}`);
}
