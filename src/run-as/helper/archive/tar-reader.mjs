/**
 * Reads a tar stream entry by entry, without holding content in memory. By default it accepts only what `archive-writer.mjs` writes: if
 * tar(1) interpreted the same bytes differently, the checked entries would not be the unpacked ones.
 *
 * `external` archives are read by no other program. Older tars and those of GNU are accepted, with sparse files in its four formats
 * ("Storing Sparse Files" in its manual), and records that do not concern names or content are skipped.
 *
 * Names are strings of one character per byte (latin1), because a name does not have to be UTF-8.
 */
import { RequestError } from "../request-error.mjs";

const blockBytes = 512;
/** Maximum of the names, times, extended attributes and ACLs of one entry. */
const maxExtendedBytes = 1 << 20;
/** Maximum number of parts of one sparse file. */
const maxParts = 1 << 20;

/** @typedef {{ at: number, bytes: number }} SparsePart Position and length of data in a sparse file. */
/** @typedef {"file" | "directory" | "symlink" | "hardlink" | "fifo" | "device"} EntryType */

/**
 * @typedef {object} TarEntry
 * @property {string} path without trailing slash
 * @property {EntryType} type
 * @property {string} target of a link
 * @property {number} size apparent size of a file
 * @property {number} stored bytes of content in the archive; for a sparse file its map and data
 * @property {boolean} sparse
 * @property {SparsePart[]} [parts] of a sparse file whose content does not start with its map
 * @property {number} mode permission bits
 * @property {number} uid
 * @property {number} gid
 * @property {string} mtime seconds since the epoch, with a fraction
 * @property {number} at offset of its first header in the archive
 * @property {number} dataAt offset of its content
 */

/**
 * @typedef {object} TarHandler
 * @property {(entry: TarEntry, headers: Buffer) => void} entry
 * @property {(piece: Buffer) => void} content
 * @property {(piece: Buffer) => void} padding
 * @property {() => void} entryEnd called after content and padding
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

/** Type of a directory in an incremental backup of GNU tar. */
const dumpDirectory = "D";

/** Types of long names in GNU tars: the equivalent record of an extended header. @type {ReadonlyMap<string, string>} */
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

/** Records of the older sparse formats. */
const olderSparseKeys = new Set([
  "GNU.sparse.size",
  "GNU.sparse.numblocks",
  "GNU.sparse.offset",
  "GNU.sparse.numbytes",
  "GNU.sparse.map",
]);

export class TarReader {
  #handler;
  #external;
  #position = 0;
  /** The received pieces of a header block or of extended headers. @type {Buffer[]} */
  #pieces = [];
  #neededBytes = blockBytes;
  #collectedBytes = 0;
  /** @type {"header" | "extended" | "parts" | "content" | "padding" | "end"} */
  #state = "header";
  #remainingBytes = 0;
  #paddingLeft = 0;
  /** Type of the extended header that is being read. */
  #extendedType = "";
  /** @type {Map<string, string> | undefined} */
  #extended;
  /**
   * Header of a sparse file of an old GNU tar, and its parts that have been read.
   * @type {{ block: Buffer, parts: SparsePart[] } | undefined}
   */
  #oldSparse;
  /** @type {Buffer[]} */
  #headers = [];
  #at = 0;
  entries = 0;

  /**
   * @param {TarHandler} handler
   * @param {{ external?: boolean }} [options]
   */
  constructor(handler, { external = false } = {}) {
    this.#handler = handler;
    this.#external = external;
  }

  /** Whether the block of zeros that ends an archive has been read. */
  get ended() {
    return this.#state === "end";
  }

  /** Whether the next byte starts an entry. */
  get between() {
    return this.#state === "header" && this.#collectedBytes === 0 && this.#extended === undefined;
  }

  /**
   * @param {Buffer} bytes only used until the call returns, unless the handler stores it
   * @throws RequestError `DAMAGED`
   */
  push(bytes) {
    for (let from = 0; from < bytes.length;) {
      switch (this.#state) {
        case "end":
          return;
        case "header":
        case "extended":
        case "parts":
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
    const piece = bytes.subarray(0, this.#neededBytes - this.#collectedBytes);
    // The caller may reuse the memory before the rest arrives.
    this.#pieces.push(piece.length === this.#neededBytes ? piece : Buffer.from(piece));
    this.#collectedBytes += piece.length;
    if (this.#collectedBytes < this.#neededBytes) return piece.length;
    const whole = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces);
    this.#pieces = [];
    this.#collectedBytes = 0;
    if (this.#state === "header") this.#takeHeader(whole);
    else if (this.#state === "parts") this.#takeParts(whole, 0, 21);
    else this.#takeExtended(whole);
    return piece.length;
  }

  /** @param {Buffer} bytes */
  #pass(bytes) {
    const piece = bytes.subarray(0, this.#remainingBytes);
    this.#remainingBytes -= piece.length;
    this.#position += piece.length;
    if (this.#state === "content") {
      this.#handler.content(piece);
      if (this.#remainingBytes === 0) this.#enterPadding();
    } else {
      this.#handler.padding(piece);
      if (this.#remainingBytes === 0) this.#endEntry();
    }
    return piece.length;
  }

  #enterPadding() {
    this.#state = "padding";
    this.#remainingBytes = this.#paddingLeft;
    if (this.#remainingBytes === 0) this.#endEntry();
  }

  #endEntry() {
    this.#state = "header";
    this.#neededBytes = blockBytes;
    this.#handler.entryEnd();
  }

  /** @param {Buffer} block */
  #takeHeader(block) {
    if (block.every((byte) => byte === 0)) {
      if (this.#extended) throw damaged("ends within an entry");
      this.#state = "end";
      return;
    }
    checkSum(block, this.#external);
    if (this.#headers.length === 0) this.#at = this.#position;
    this.#position += blockBytes;
    // Not needed for an archive of another origin, which may have any number of them before an entry.
    if (!this.#external) this.#headers.push(Buffer.from(block));
    const type = block.toString("latin1", 156, 157);
    if (type === "x" || (this.#external && (type === "g" || longNames.has(type)))) {
      const size = octal(block, 124, 12);
      if (this.#extended && !this.#external) throw damaged("has two extended headers for one entry");
      if (size > maxExtendedBytes) throw damaged("has an extended header that is too large");
      this.#remainingBytes = size;
      this.#neededBytes = size + paddingBytes(size);
      this.#extendedType = type;
      this.#extended ??= new Map();
      this.#state = size === 0 ? "header" : "extended";
      if (size === 0) this.#neededBytes = blockBytes;
      return;
    }
    // The volume's label, which GNU tar writes first with `--label`.
    if (type === "V" && this.#external && octal(block, 124, 12) === 0) return;
    if (type === "S" && this.#external) {
      this.#oldSparse = { block: Buffer.from(block), parts: [] };
      this.#takeParts(block, 386, 4);
      return;
    }
    this.#begin(block, type);
  }

  /**
   * Takes the parts of a sparse file of an old GNU tar from its header, or from a block after it.
   * @param {Buffer} bytes
   * @param {number} start
   * @param {number} count
   */
  #takeParts(bytes, start, count) {
    const { block, parts } = this.#oldSparse ?? { block: bytes, parts: [] };
    if (this.#state === "parts") this.#position += blockBytes;
    for (let at = start; at < start + count * 24; at += 24) {
      if (bytes[at] === 0) break;
      parts.push({ at: octal(bytes, at, 12, true), bytes: octal(bytes, at + 12, 12, true) });
    }
    if (parts.length > maxParts) throw damaged("has a sparse file with too many parts");
    if (bytes[start + count * 24] === 0) {
      this.#oldSparse = undefined;
      this.#begin(block, "0", { size: octal(block, 483, 12), parts });
      return;
    }
    this.#state = "parts";
    this.#neededBytes = blockBytes;
  }

  /** @param {Buffer} bytes */
  #takeExtended(bytes) {
    this.#position += bytes.length;
    if (!this.#external) this.#headers.push(Buffer.from(bytes));
    const content = bytes.subarray(0, this.#remainingBytes);
    const longName = longNames.get(this.#extendedType);
    if (longName !== undefined) this.#extended?.set(longName, text(content, 0, content.length));
    // A global header applies to all following entries, so it cannot contain a name or a size.
    else if (this.#extendedType === "x") {
      for (const [key, value] of readRecords(content, this.#external)) this.#extended?.set(key, value);
    }
    this.#state = "header";
    this.#neededBytes = blockBytes;
  }

  /**
   * @param {Buffer} block
   * @param {string} typeFlag
   * @param {{ size: number, parts: SparsePart[] }} [oldSparse]
   */
  #begin(block, typeFlag, oldSparse) {
    const extended = this.#extended ?? new Map();
    const path =
      extended.get("GNU.sparse.name") ??
      extended.get("path") ??
      (isUstar(block) ? nameOf(block) : text(block, 0, 100));
    const type = this.#external ? externalType(path, typeFlag) : types.get(typeFlag);
    if (type === undefined) throw damaged(`has an entry of type ${JSON.stringify(typeFlag)}`);
    const older = oldSparse ?? (this.#external ? olderSparse(extended) : undefined);
    const sparse = older !== undefined || isSparse(extended);
    if (sparse && type !== "file") throw damaged("has a sparse entry that is not a file");
    const declared = number(extended.get("size")) ?? octal(block, 124, 12);
    // The names that an incremental backup of GNU tar lists; they are also entries.
    const listed = typeFlag === dumpDirectory ? declared : 0;
    const stored = declared - listed;
    // Only files have content; tar(1) itself is inconsistent about other entries that declare content.
    if (stored !== 0 && type !== "file") throw damaged("has content for an entry that has none");
    /** @type {TarEntry} */
    const entry = {
      path: type === "directory" ? path.replace(/\/+$/, "") : path,
      type,
      target:
        type === "symlink" || type === "hardlink" ? (extended.get("linkpath") ?? text(block, 157, 100)) : "",
      size: older?.size ?? (sparse ? number(extended.get("GNU.sparse.realsize")) : undefined) ?? stored,
      stored,
      sparse,
      ...(older && { parts: older.parts }),
      mode: octal(block, 100, 8) & 0o7777,
      uid: number(extended.get("uid")) ?? octal(block, 108, 8),
      gid: number(extended.get("gid")) ?? octal(block, 116, 8),
      mtime: extended.get("mtime") ?? timeOf(block),
      at: this.#at,
      dataAt: this.#position,
    };
    if (!/^-?\d+(\.\d+)?$/.test(entry.mtime)) throw damaged("has an invalid time");
    const headers = Buffer.concat(this.#headers);
    this.#headers = [];
    this.#extended = undefined;
    this.entries++;
    this.#handler.entry(entry, headers);
    this.#remainingBytes = stored;
    this.#paddingLeft = listed + paddingBytes(declared);
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
 * @param {boolean} external
 */
function checkSum(block, external) {
  let sum = 8 * 0x20;
  for (let at = 0; at < blockBytes; at++) if (at < 148 || at >= 156) sum += block[at] ?? 0;
  if (sum !== octal(block, 148, 8)) throw damaged("has a header whose checksum is wrong");
  if (!external && !isUstar(block)) throw damaged("is not a POSIX tar");
}

/** @param {Buffer} block */
function isUstar(block) {
  return block.toString("latin1", 257, 263) === "ustar\0";
}

/**
 * @param {string} path the whole path; the header itself has only the start of a long one
 * @param {string} typeFlag
 * @returns {EntryType | undefined}
 */
function externalType(path, typeFlag) {
  // Tars from before POSIX mark directories only by their names. Contiguous files are files.
  const isFile = typeFlag === "0" || typeFlag === "\0" || typeFlag === "7";
  if (isFile && path.endsWith("/")) return "directory";
  if (typeFlag === dumpDirectory) return "directory";
  return isFile ? "file" : types.get(typeFlag);
}

/** @param {Buffer} block @returns {string} */
function timeOf(block) {
  // GNU tar writes a time before 1970 in binary.
  if (block[136] === 0xff && isGnu(block))
    return String(BigInt.asIntN(96, BigInt(`0x${block.toString("hex", 136, 148)}`)));
  return String(octal(block, 136, 12));
}

/** @param {Buffer} block */
function isGnu(block) {
  return block.toString("latin1", 257, 265) === "ustar  \0";
}

/**
 * @param {Buffer} block
 * @param {number} start
 * @param {number} length
 * @param {boolean} [isOfGnu] whether GNU tar wrote the block
 */
function octal(block, start, length, isOfGnu = isGnu(block)) {
  // GNU tar writes a number that does not fit into the digits in binary; POSIX uses an extended header.
  if (block[start] === 0x80 && isOfGnu) {
    const value = Number(BigInt(`0x${block.toString("hex", start + 1, start + length)}`));
    if (!Number.isSafeInteger(value)) throw damaged("has a header with a number that is too large");
    return value;
  }
  const digits = /^ *([0-7]*)[ \0]*$/.exec(block.toString("latin1", start, start + length))?.[1];
  if (digits === undefined) throw damaged("has a header with an invalid number");
  return digits === "" ? 0 : Number.parseInt(digits, 8);
}

/** @param {string | undefined} digits */
function number(digits) {
  if (digits === undefined) return undefined;
  const value = Number(digits);
  if (!/^\d{1,16}$/.test(digits) || !Number.isSafeInteger(value)) {
    throw damaged("has an extended header with an invalid number");
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

/**
 * Returns the size and parts of a sparse file of version 0.0 or 0.1, which has its parts in extended headers.
 * @param {Map<string, string>} extended
 */
function olderSparse(extended) {
  const size = number(extended.get("GNU.sparse.size"));
  if (size === undefined || extended.has("GNU.sparse.major")) return undefined;
  const numbers = (extended.get("GNU.sparse.map") ?? "").split(",").filter((digits) => digits !== "");
  if (numbers.length !== 2 * (number(extended.get("GNU.sparse.numblocks")) ?? 0))
    throw damaged("has a sparse file with an invalid map");
  /** @type {SparsePart[]} */
  const parts = [];
  for (let at = 0; at < numbers.length; at += 2)
    parts.push({ at: number(numbers[at]) ?? 0, bytes: number(numbers[at + 1]) ?? 0 });
  return { size, parts };
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
 * Parses the records of an extended header: `LENGTH KEY=VALUE\n`, with the length of the whole record in decimal.
 * @param {Buffer} bytes
 * @param {boolean} external
 */
function readRecords(bytes, external) {
  /** @type {Map<string, string>} */
  const records = new Map();
  for (let start = 0; start < bytes.length;) {
    const digits = /^(\d{1,7}) /.exec(bytes.toString("latin1", start, start + 8))?.[1];
    const end = start + Number(digits ?? 0);
    if (digits === undefined || end > bytes.length || bytes[end - 1] !== 0x0a) {
      throw damaged("has an invalid extended header");
    }
    const record = bytes.toString("latin1", start + digits.length + 1, end - 1);
    const equals = record.indexOf("=");
    const key = record.slice(0, equals);
    const isKnown =
      knownKeys.has(key) || key.startsWith("SCHILY.xattr.") || (external && olderSparseKeys.has(key));
    const mayPass = external && !(key.startsWith("GNU.sparse.") && !isKnown);
    if (equals < 1 || (!mayPass && (records.has(key) || !isKnown))) {
      throw damaged(`has an extended header ${JSON.stringify(key.slice(0, 64))} that is not allowed`);
    }
    const value = record.slice(equals + 1);
    if (isKnown && value.includes("\0") && !key.startsWith("SCHILY."))
      throw damaged("has a name with a NUL byte");
    if (key === "GNU.sparse.offset" || key === "GNU.sparse.numbytes") {
      // Version 0.0 repeats this pair for each part; version 0.1 has all parts in one record.
      const before = records.get("GNU.sparse.map");
      records.set("GNU.sparse.map", before === undefined ? value : `${before},${value}`);
    } else if (isKnown) records.set(key, value);
    start = end;
  }
  return records;
}
