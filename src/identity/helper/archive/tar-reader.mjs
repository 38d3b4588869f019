/**
 * Reads a tar as it streams by: entry by entry, without holding their content. It understands what the tar of
 * `archive-writer.mjs` writes and refuses everything else: where this reader and tar(1) saw different things in the same
 * bytes, what is checked here would not be what is laid out there. Archives from anywhere, that nothing else reads, are
 * `foreign`: what older tars and GNU's write is understood, and what says nothing about names and content is passed over.
 *
 * Names are strings of one character per byte (latin1), since a name need not be UTF-8.
 */
import { RequestError } from "../request-error.mjs";

const blockBytes = 512;
/** Names, times, extended attributes and lists of access rights of one entry. */
const maxExtendedBytes = 1 << 20;

/** @typedef {"file" | "directory" | "symlink" | "hardlink" | "fifo" | "device"} EntryType */

/**
 * @typedef {object} TarEntry
 * @property {string} path Without a slash at its end.
 * @property {EntryType} type
 * @property {string} target Of a link.
 * @property {number} size Apparent size of a file.
 * @property {number} stored Bytes of content in the archive; of a sparse file its map and what is no hole.
 * @property {boolean} sparse
 * @property {number} mode Permission bits.
 * @property {number} uid
 * @property {number} gid
 * @property {string} mtime Seconds since the epoch, with a fraction.
 * @property {number} at Where its first header begins, bytes from the archive's start.
 * @property {number} dataAt Where its content begins.
 */

/**
 * @typedef {object} TarHandler
 * @property {(entry: TarEntry, headers: Buffer) => void} entry
 * @property {(piece: Buffer) => void} content
 * @property {(piece: Buffer) => void} padding
 * @property {() => void} entryEnd After content and padding.
 */

/** @type {ReadonlyMap<string, EntryType>} */
const types = new Map([
  ["0", "file"],
  ["1", "hardlink"],
  ["2", "symlink"],
  ["3", "device"],
  ["4", "device"],
  ["5", "directory"],
  ["6", "fifo"],
]);

/** Longer names as GNU's tar writes them: which record of an extended header they stand for. @type {ReadonlyMap<string, string>} */
const longNames = new Map([
  ["L", "path"],
  ["K", "linkpath"],
]);

const knownKeys = new Set([
  "path",
  "linkpath",
  "size",
  "mtime",
  "uid",
  "gid",
  "SCHILY.acl.access",
  "SCHILY.acl.default",
  "GNU.sparse.major",
  "GNU.sparse.minor",
  "GNU.sparse.name",
  "GNU.sparse.realsize",
]);

export class TarReader {
  #handler;
  #foreign;
  #position = 0;
  /** The pieces of a header block, or of extended headers, that have come so far. @type {Buffer[]} */
  #pieces = [];
  #wanted = blockBytes;
  #held = 0;
  /** @type {"header" | "extended" | "content" | "padding" | "end"} */
  #state = "header";
  #left = 0;
  #paddingLeft = 0;
  /** Of the extended header that is being read. */
  #extendedType = "";
  /** @type {Map<string, string> | undefined} */
  #extended;
  /** @type {Buffer[]} */
  #headers = [];
  #at = 0;
  entries = 0;

  /**
   * @param {TarHandler} handler
   * @param {{ foreign?: boolean }} [options]
   */
  constructor(handler, { foreign = false } = {}) {
    this.#handler = handler;
    this.#foreign = foreign;
  }

  /** Whether the block of zeros has come that ends an archive. */
  get ended() {
    return this.#state === "end";
  }

  /** Whether the next byte begins an entry. */
  get between() {
    return this.#state === "header" && this.#held === 0 && this.#extended === undefined;
  }

  /**
   * @param {Buffer} bytes Lent until the call returns, but for what the handler keeps.
   * @throws RequestError `DAMAGED`
   */
  push(bytes) {
    for (let from = 0; from < bytes.length;) {
      switch (this.#state) {
        case "end":
          return;
        case "header":
        case "extended":
          from += this.#gather(bytes.subarray(from));
          break;
        case "content":
        case "padding":
          from += this.#pass(bytes.subarray(from));
      }
    }
  }

  /** @param {Buffer} bytes */
  #gather(bytes) {
    const piece = bytes.subarray(0, this.#wanted - this.#held);
    // The caller's memory may be another thing's by the time the rest arrives.
    this.#pieces.push(piece.length === this.#wanted ? piece : Buffer.from(piece));
    this.#held += piece.length;
    if (this.#held < this.#wanted) return piece.length;
    const whole = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces);
    this.#pieces = [];
    this.#held = 0;
    if (this.#state === "header") this.#takeHeader(whole);
    else this.#takeExtended(whole);
    return piece.length;
  }

  /** @param {Buffer} bytes */
  #pass(bytes) {
    const piece = bytes.subarray(0, this.#left);
    this.#left -= piece.length;
    this.#position += piece.length;
    if (this.#state === "content") {
      this.#handler.content(piece);
      if (this.#left === 0) this.#enterPadding();
    } else {
      this.#handler.padding(piece);
      if (this.#left === 0) this.#endEntry();
    }
    return piece.length;
  }

  #enterPadding() {
    this.#state = "padding";
    this.#left = this.#paddingLeft;
    if (this.#left === 0) this.#endEntry();
  }

  #endEntry() {
    this.#state = "header";
    this.#wanted = blockBytes;
    this.#handler.entryEnd();
  }

  /** @param {Buffer} block */
  #takeHeader(block) {
    if (block.every((byte) => byte === 0)) {
      if (this.#extended) throw damaged("ends within an entry");
      this.#state = "end";
      return;
    }
    checkSum(block, this.#foreign);
    if (this.#headers.length === 0) this.#at = this.#position;
    this.#position += blockBytes;
    // Nobody asks a foreign one for them, and there may be any number before an entry.
    if (!this.#foreign) this.#headers.push(Buffer.from(block));
    const type = block.toString("latin1", 156, 157);
    if (type === "x" || (this.#foreign && (type === "g" || longNames.has(type)))) {
      const size = octal(block, 124, 12);
      if (this.#extended && !this.#foreign) throw damaged("has two extended headers for one entry");
      if (size > maxExtendedBytes) throw damaged("has an extended header that is too large");
      this.#left = size;
      this.#wanted = size + paddingBytes(size);
      this.#extendedType = type;
      this.#extended ??= new Map();
      this.#state = size === 0 ? "header" : "extended";
      if (size === 0) this.#wanted = blockBytes;
      return;
    }
    this.#begin(block, type);
  }

  /** @param {Buffer} bytes */
  #takeExtended(bytes) {
    this.#position += bytes.length;
    if (!this.#foreign) this.#headers.push(Buffer.from(bytes));
    const content = bytes.subarray(0, this.#left);
    const longName = longNames.get(this.#extendedType);
    if (longName !== undefined) this.#extended?.set(longName, text(content, 0, content.length));
    // What is said of all entries to come is no name, and no size, of any.
    else if (this.#extendedType === "x") {
      for (const [key, value] of readRecords(content, this.#foreign)) this.#extended?.set(key, value);
    }
    this.#state = "header";
    this.#wanted = blockBytes;
  }

  /**
   * @param {Buffer} block
   * @param {string} typeFlag
   */
  #begin(block, typeFlag) {
    const extended = this.#extended ?? new Map();
    const path =
      extended.get("GNU.sparse.name") ??
      extended.get("path") ??
      (isUstar(block) ? nameOf(block) : text(block, 0, 100));
    const type = this.#foreign ? foreignType(path, typeFlag) : types.get(typeFlag);
    if (type === undefined) throw damaged(`has an entry of type ${JSON.stringify(typeFlag)}`);
    const sparse = isSparse(extended);
    if (sparse && type !== "file") throw damaged("has a sparse entry that is no file");
    const stored = number(extended.get("size")) ?? octal(block, 124, 12);
    // Only files have content; tar(1) does not agree with itself about others that say they have.
    if (stored !== 0 && type !== "file") throw damaged("has content for an entry that has none");
    /** @type {TarEntry} */
    const entry = {
      path: type === "directory" ? path.replace(/\/+$/, "") : path,
      type,
      target:
        type === "symlink" || type === "hardlink" ? (extended.get("linkpath") ?? text(block, 157, 100)) : "",
      size: (sparse ? number(extended.get("GNU.sparse.realsize")) : undefined) ?? stored,
      stored,
      sparse,
      mode: octal(block, 100, 8) & 0o7777,
      uid: number(extended.get("uid")) ?? octal(block, 108, 8),
      gid: number(extended.get("gid")) ?? octal(block, 116, 8),
      mtime: extended.get("mtime") ?? String(octal(block, 136, 12)),
      at: this.#at,
      dataAt: this.#position,
    };
    if (!/^-?\d+(\.\d+)?$/.test(entry.mtime)) throw damaged("has a time that is none");
    const headers = Buffer.concat(this.#headers);
    this.#headers = [];
    this.#extended = undefined;
    this.entries++;
    this.#handler.entry(entry, headers);
    this.#left = stored;
    this.#paddingLeft = paddingBytes(stored);
    this.#state = "content";
    if (stored === 0) this.#enterPadding();
  }
}

/** @param {string} what */
export function damaged(what) {
  return new RequestError("DAMAGED", what);
}

/** @param {number} size */
export function paddingBytes(size) {
  return (blockBytes - (size % blockBytes)) % blockBytes;
}

/**
 * @param {Buffer} block
 * @param {boolean} foreign
 */
function checkSum(block, foreign) {
  let sum = 8 * 0x20;
  for (let at = 0; at < blockBytes; at++) if (at < 148 || at >= 156) sum += block[at] ?? 0;
  if (sum !== octal(block, 148, 8)) throw damaged("has a header whose checksum is wrong");
  if (!foreign && !isUstar(block)) throw damaged("is no POSIX tar");
}

/** @param {Buffer} block */
function isUstar(block) {
  return block.toString("latin1", 257, 263) === "ustar\0";
}

/**
 * @param {string} path Whole: the header itself has the beginning of a long one.
 * @param {string} typeFlag
 * @returns {EntryType | undefined}
 */
function foreignType(path, typeFlag) {
  // Tars from before POSIX know directories by their names alone; contiguous files are files.
  const isFile = typeFlag === "0" || typeFlag === "\0" || typeFlag === "7";
  if (isFile && path.endsWith("/")) return "directory";
  return isFile ? "file" : types.get(typeFlag);
}

/**
 * @param {Buffer} block
 * @param {number} start
 * @param {number} length
 */
function octal(block, start, length) {
  // GNU's tar writes what does not fit into the digits as a binary number, POSIX's in an extended header.
  if (block[start] === 0x80 && block.toString("latin1", 257, 265) === "ustar  \0") {
    const value = Number(BigInt(`0x${block.toString("hex", start + 1, start + length)}`));
    if (!Number.isSafeInteger(value)) throw damaged("has a header with a number that is too large");
    return value;
  }
  const digits = /^ *([0-7]*)[ \0]*$/.exec(block.toString("latin1", start, start + length))?.[1];
  if (digits === undefined) throw damaged("has a header with a number that is none");
  return digits === "" ? 0 : Number.parseInt(digits, 8);
}

/** @param {string | undefined} digits */
function number(digits) {
  if (digits === undefined) return undefined;
  const value = Number(digits);
  if (!/^\d{1,16}$/.test(digits) || !Number.isSafeInteger(value)) {
    throw damaged("has an extended header with a number that is none");
  }
  return value;
}

/**
 * @param {Buffer} block
 * @param {number} start
 * @param {number} length
 */
function text(block, start, length) {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return field.toString("latin1", 0, end < 0 ? length : end);
}

/** @param {Buffer} block */
function nameOf(block) {
  const prefix = text(block, 345, 155);
  const name = text(block, 0, 100);
  return prefix === "" ? name : `${prefix}/${name}`;
}

/** @param {Map<string, string>} extended */
function isSparse(extended) {
  const keys = [...extended.keys()].filter((key) => key.startsWith("GNU.sparse."));
  if (keys.length === 0) return false;
  const isKnown = extended.get("GNU.sparse.major") === "1" && extended.get("GNU.sparse.minor") === "0";
  if (!isKnown || !extended.has("GNU.sparse.name") || !extended.has("GNU.sparse.realsize")) {
    throw damaged("has a sparse file of an unknown form");
  }
  return true;
}

/**
 * The records of an extended header: `LENGTH KEY=VALUE\n`, the length in decimal and of the whole record.
 * @param {Buffer} bytes
 * @param {boolean} foreign
 */
function readRecords(bytes, foreign) {
  /** @type {Map<string, string>} */
  const records = new Map();
  for (let start = 0; start < bytes.length;) {
    const digits = /^(\d{1,7}) /.exec(bytes.toString("latin1", start, start + 8))?.[1];
    const end = start + Number(digits ?? 0);
    if (digits === undefined || end > bytes.length || bytes[end - 1] !== 0x0a) {
      throw damaged("has an extended header that makes no sense");
    }
    const record = bytes.toString("latin1", start + digits.length + 1, end - 1);
    const equals = record.indexOf("=");
    const key = record.slice(0, equals);
    const isKnown = knownKeys.has(key) || key.startsWith("SCHILY.xattr.");
    const mayPass = foreign && !(key.startsWith("GNU.sparse.") && !isKnown);
    if (equals < 1 || (!mayPass && (records.has(key) || !isKnown))) {
      throw damaged(`has an extended header ${JSON.stringify(key.slice(0, 64))} that it cannot have`);
    }
    const value = record.slice(equals + 1);
    if (value.includes("\0") && !key.startsWith("SCHILY.")) throw damaged("has a name with a NUL byte");
    if (isKnown) records.set(key, value);
    start = end;
  }
  return records;
}
