/**
 * The index of an archive: a line of JSON per entry, in the archive's order, in zstd blocks. Each block is prefixed
 * with its length and its raw length, unsigned 32 bit little-endian, so that it can be read and written piece by piece.
 */
import { compressFrame, freeFrame, openFrame } from "./frames.mjs";
import { damaged } from "./tar-reader.mjs";

const blockBytes = 1 << 20;
const prefixBytes = 8;

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */
/** @typedef {import("./tar-reader.mjs").EntryType} EntryType */

/**
 * @typedef {TarEntry & { sha256: string, mark?: string, same?: boolean }} IndexedEntry `sha256` of the stored content
 *   in lower-case hex, or empty. `mark` as returned by {@link import("./file-marks.mjs").markOf}. `same`: a file that
 *   is unchanged since the previous archive and has no content here.
 */

export class IndexWriter {
  /** @type {string[]} */
  #lines = [];
  #chars = 0;
  /** @type {Promise<Buffer>[]} */
  #blocks = [];

  /** @param {IndexedEntry} entry */
  add(entry) {
    const line = `${JSON.stringify(toLine(entry))}\n`;
    this.#lines.push(line);
    this.#chars += line.length;
    if (this.#chars >= blockBytes) this.#cut();
  }

  async end() {
    if (this.#lines.length > 0) this.#cut();
    return Buffer.concat(await Promise.all(this.#blocks));
  }

  #cut() {
    const raw = Buffer.from(this.#lines.join(""));
    this.#lines = [];
    this.#chars = 0;
    this.#blocks.push(
      compressFrame(raw).then((frame) => {
        const prefix = Buffer.alloc(prefixBytes);
        prefix.writeUInt32LE(frame.length, 0);
        prefix.writeUInt32LE(raw.length, 4);
        const block = Buffer.concat([prefix, frame]);
        freeFrame(frame);
        return block;
      }),
    );
  }
}

/**
 * Yields the entries of an index.
 * @param {Buffer} index
 * @returns {AsyncGenerator<IndexedEntry, void, void>}
 */
export async function* readIndex(index) {
  for (let at = 0; at < index.length;) {
    if (index.length - at < prefixBytes) throw damaged("has a truncated index");
    const length = index.readUInt32LE(at);
    const rawBytes = index.readUInt32LE(at + 4);
    at += prefixBytes;
    if (length > index.length - at) throw damaged("has a truncated index");
    const raw = await openFrame(index.subarray(at, at + length), rawBytes);
    at += length;
    for (let start = 0; start < raw.length;) {
      const end = raw.indexOf(0x0a, start);
      if (end < 0) throw damaged("has a truncated index");
      yield fromLine(raw.toString("utf8", start, end));
      start = end + 1;
    }
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Encodes a name for JSON.
 * @param {string} key
 * @param {string} name
 * @returns {Record<string, string>}
 */
function named(key, name) {
  const bytes = Buffer.from(name, "latin1");
  try {
    return { [key]: utf8.decode(bytes) };
  } catch {
    return { [`${key}_base64`]: bytes.toString("base64") };
  }
}

/** @param {IndexedEntry} entry */
function toLine(entry) {
  return {
    ...named("path", entry.path),
    type: entry.type,
    ...(entry.target !== "" && named("target", entry.target)),
    ...(entry.type === "file" && { size: entry.size, stored: entry.stored }),
    ...(entry.sparse && { sparse: true }),
    mode: entry.mode,
    uid: entry.uid,
    gid: entry.gid,
    mtime: entry.mtime,
    at: entry.at,
    data_at: entry.dataAt,
    ...(entry.sha256 !== "" && { sha256: entry.sha256 }),
    ...(entry.mark && { mark: entry.mark }),
    ...(entry.same && { same: true }),
  };
}

/**
 * @param {string} line
 * @returns {IndexedEntry}
 */
function fromLine(line) {
  const fields = parseObject(line);
  const name = (/** @type {string} */ key) => {
    const [plain, encoded] = [fields[key], fields[`${key}_base64`]];
    if (typeof plain === "string") return Buffer.from(plain).toString("latin1");
    return typeof encoded === "string" ? Buffer.from(encoded, "base64").toString("latin1") : "";
  };
  const count = (/** @type {string} */ key) => {
    const value = fields[key] ?? 0;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      throw damaged(`has an index whose ${key} is not a number`);
    }
    return value;
  };
  const { sha256 = "", mtime = "0", mark = "" } = fields;
  return {
    path: name("path"),
    type: /** @type {EntryType} */ (String(fields["type"])),
    target: name("target"),
    size: count("size"),
    stored: count("stored"),
    sparse: fields["sparse"] === true,
    mode: count("mode"),
    uid: count("uid"),
    gid: count("gid"),
    mtime: String(mtime),
    at: count("at"),
    dataAt: count("data_at"),
    sha256: String(sha256),
    mark: String(mark),
    same: fields["same"] === true,
  };
}

/**
 * @param {string} line
 * @returns {Record<string, unknown>}
 */
function parseObject(line) {
  try {
    /** @type {unknown} */
    const value = JSON.parse(line);
    if (typeof value === "object" && value !== null) return /** @type {Record<string, unknown>} */ (value);
  } catch {
    // Thrown below.
  }
  throw damaged("has an index that is not valid JSON");
}
