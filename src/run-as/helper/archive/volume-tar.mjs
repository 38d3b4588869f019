/**
 * Volumes of the container engine within an archive. The engine's tar of a directory is parsed and rewritten in both
 * directions, because containers wrote its content, and because its names begin with the name of the directory.
 */
import { toLatin1 } from "../directory.mjs";
import { headers, padding } from "../host/archive/tar-bytes.mjs";
import { EntryGuard } from "./entry-guard.mjs";
import { excluder } from "./exclude-patterns.mjs";
import { damaged, TarReader } from "./tar-reader.mjs";
import { typeFlags } from "./tree-tar.mjs";

/** The engine's name of the directory at which it mounts a volume. */
const directoryName = "volume";
const endOfTar = Buffer.alloc(1024);
const lengthBytes = 4;
/** Prefix of a piece sent to the daemon: its length, and the number of its tree. */
const prefixBytes = 8;
const noTree = 0xffff_ffff;
const setIdBits = 0o6000;

/** @typedef {import("./byte-source.mjs").ByteSource} ByteSource */
/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */

/**
 * @param {TarEntry} entry
 * @param {string} path
 * @param {string} target
 */
function headersOf({ type, stored, mode, uid, gid, mtime }, path, target) {
  const seconds = Math.max(0, Math.floor(Number(mtime)));
  return headers({
    path: type === "directory" ? `${path}/` : path,
    type: typeFlags[type],
    ...{ target, size: stored, mode, uid, gid },
    mtime: seconds,
    ...(String(seconds) !== mtime && { exactMtime: mtime }),
  });
}

/** @typedef {import("./tar-reader.mjs").TarHandler & { warn: (warning: string) => void }} VolumeHandler */

/** Converts the engine's tar of a volume to entries of an archive's tree. */
export class VolumeTar {
  #tree;
  #handler;
  #guard;
  #isExcluded;
  #uid;
  #retains = false;
  #reader = new TarReader(
    {
      entry: (entry) => this.#begin(entry),
      content: (piece) => this.#retains && this.#handler.content(piece),
      padding: (piece) => this.#retains && this.#handler.padding(piece),
      entryEnd: () => this.#retains && this.#handler.entryEnd(),
    },
    { external: true },
  );

  /**
   * @param {string} tree
   * @param {string[]} excludes
   * @param {VolumeHandler} handler
   */
  constructor(tree, excludes, handler) {
    this.#tree = toLatin1(tree);
    this.#uid = process.geteuid?.() ?? 0;
    // Entries that this rejects could not be restored.
    this.#guard = new EntryGuard([this.#tree], this.#uid);
    this.#isExcluded = excluder(excludes);
    this.#handler = handler;
  }

  /**
   * Reads pieces until an empty one. Each is prefixed with its length, unsigned 32 bit little-endian.
   * @param {ByteSource} source
   * @param {() => Promise<void> | undefined} flush called after each piece
   */
  async read(source, flush) {
    for (;;) {
      const length = (await source.take(lengthBytes)).readUInt32LE(0);
      if (length === 0) break;
      this.#reader.push(await source.take(length));
      await flush();
    }
    if (!this.#reader.ended) throw damaged("of a volume ended early: the container engine stopped sending");
  }

  /** @param {TarEntry} entry */
  #begin(entry) {
    this.#retains = false;
    const path = this.#placed(entry.path);
    const target = entry.type === "hardlink" ? this.#placed(entry.target) : entry.target;
    if (entry.sparse) throw damaged("of a volume has a sparse file, which the container engine never sends");
    if (this.#isExcluded(path.slice(this.#tree.length + 1))) return;
    if (entry.type === "device") {
      this.#handler.warn(`${path} is a device and was left out`);
      return;
    }
    if (entry.type === "hardlink" && !this.#guard.has(target)) {
      this.#handler.warn(`${path} is a hard link to an entry that was left out, and was left out`);
      return;
    }
    const mode = this.#modeOf(path, entry);
    const archived = { ...entry, path, target, mode };
    this.#guard.admit({ ...archived, sha256: "" });
    this.#retains = true;
    this.#handler.entry(archived, headersOf(archived, path, target));
  }

  /**
   * @param {string} path
   * @param {TarEntry} entry
   */
  #modeOf(path, { type, mode, uid }) {
    const hasOtherOwner = type === "file" && (mode & setIdBits) !== 0 && this.#uid !== 0 && uid !== this.#uid;
    if (!hasOtherOwner) return mode;
    this.#handler.warn(`${path} was stored without its setuid or setgid bit`);
    return mode & ~setIdBits;
  }

  /** @param {string} name */
  #placed(name) {
    if (name === directoryName) return this.#tree;
    if (!name.startsWith(`${directoryName}/`)) throw damaged("of a volume has a name outside of it");
    return `${this.#tree}${name.slice(directoryName.length)}`;
  }
}

/** Sends trees to the daemon as tars for the engine: pieces, each prefixed with its length and the number of its tree. */
export class VolumeSink {
  #trees;
  #output;
  #tree = noTree;
  /** @type {Set<number>} */
  #done = new Set();
  #remaining = 0;

  /**
   * @param {string[]} trees as latin1
   * @param {(bytes: Buffer) => Promise<void>} output
   */
  constructor(trees, output) {
    this.#trees = trees;
    this.#output = output;
  }

  /** @returns {never} */
  keep() {
    throw damaged("has only a part of a volume");
  }

  /**
   * Starts an entry with its headers and possibly some of its content.
   * @param {number} tree
   * @param {TarEntry} entry
   * @param {Buffer} bytes
   */
  async begin(tree, entry, bytes) {
    if (tree !== this.#tree) {
      await this.#endTree();
      if (this.#done.has(tree)) throw damaged("has the entries of a volume in two places");
      this.#tree = tree;
    }
    if (entry.sparse) throw damaged("has a sparse file in a volume");
    const root = this.#trees[tree] ?? "";
    const placed = (/** @type {string} */ path) => `${directoryName}${path.slice(root.length)}`;
    const target = entry.type === "hardlink" ? placed(entry.target) : entry.target;
    await this.#send(headersOf(entry, placed(entry.path), target));
    this.#remaining = entry.stored + padding(entry.stored).length;
    await this.write(bytes.subarray(entry.dataAt - entry.at));
  }

  /** @param {Buffer} piece */
  async write(piece) {
    const content = piece.subarray(0, this.#remaining);
    this.#remaining -= content.length;
    if (content.length > 0) await this.#send(content);
  }

  async finish() {
    await this.#endTree();
    this.#tree = noTree;
    await this.#send(Buffer.alloc(0));
  }

  async #endTree() {
    if (this.#tree === noTree) return;
    await this.#send(endOfTar);
    await this.#send(Buffer.alloc(0));
    this.#done.add(this.#tree);
    this.#tree = noTree;
  }

  /** @param {Buffer} piece */
  async #send(piece) {
    const prefix = Buffer.alloc(prefixBytes);
    prefix.writeUInt32LE(piece.length, 0);
    prefix.writeUInt32LE(this.#tree, 4);
    await this.#output(Buffer.concat([prefix, piece]));
  }
}
