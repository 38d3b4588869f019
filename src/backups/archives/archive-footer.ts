/**
 * The footer of an archive: a skippable frame with the archive's metadata. Its last bytes contain its length,
 * so that one short read from the end finds it. See docs/backup-format.md.
 */
import { hash } from "node:crypto";
import { promisify } from "node:util";
import { zstdCompress, zstdDecompress } from "node:zlib";
import { volumeOfTree } from "../../apps/lifecycle/backed-up-trees.ts";
import { maxStructure, SvcError } from "../../errors.ts";
import type { ArchivePart, ArchiveParts } from "../../run-as/user-helper-types.ts";
import { hasMoreStructure, isObject, type JsonObject } from "../../lib/json.ts";
import { wholeCommit } from "../../packages/git/git-refs.ts";
import {
  isBetween,
  isText,
  isUid,
  isInteger,
  listOf,
  maybe,
  objectOf,
  type Check,
} from "../../store/row-document.ts";
import type { StoredFile } from "../storages/storage.ts";

/** The metadata of an archive. */
export interface ArchiveFooter {
  /** 2 for a differential archive. */
  format: 1 | 2;
  svc_version: string;
  /** RFC 3339. */
  created_at: string;
  mode: string;
  /** ID of the store that created it. */
  host: string;
  app: {
    id: string;
    name: string;
    package_id: string;
    runtime: string;
    version: string;
    owner_uid: number;
    /** The owner's name on that host. */
    owner: string;
    /** The owner of the files. */
    run_uid: number;
    origin: JsonObject;
    settings: JsonObject;
    /** The accepted licenses and permissions. */
    accepted: { licenses: string[]; permissions: string[] };
  };
  trees: string[];
  /** The name of the base archive; absent for a full archive. */
  since?: string;
  parts: ArchiveParts;
  warnings: string[];
}

const skippableMagic = 0x184d2a5a;
const prefixBytes = 8;
/**
 * SHA-256 of the compressed JSON, its length and its raw length, unsigned 32 bit little-endian, and a magic
 * word.
 */
const tailBytes = 48;
const word = "svcbkup1";
/** More than any footer needs; the settings are the largest part. */
const maxFooterBytes = 2 << 20;
/**
 * Limit for brackets, commas, colons and quotes: enough for settings from a request and a thousand trees. A
 * footer is parsed in one piece.
 */
const maxFooterStructure = maxStructure + 4096;
/** Bytes of the first read from the end; most footers are shorter. */
const firstReadBytes = 64 << 10;

const maxUrlChars = 4096;

/** A footer with the digest that identifies its archive. */
export interface IdentifiedFooter {
  footer: ArchiveFooter;
  /** See {@link footerDigest}. */
  digest: string;
}

/**
 * SHA-256 of a stored footer, lower-case hex. The footer contains hashes of the index and the frame table,
 * which contain hashes of the content, so the digest identifies the archive.
 * @param end the end of an archive, with its last bytes
 */
export function footerDigest(end: Buffer): string {
  return end.toString("hex", end.length - tailBytes, end.length - tailBytes + 32);
}

export async function encodeFooter(footer: ArchiveFooter): Promise<Buffer> {
  const text = JSON.stringify(footer);
  const raw = Buffer.from(text);
  if (raw.length > maxFooterBytes || hasMoreStructure(text, maxFooterStructure))
    throw new SvcError("not_possible", "the app's settings are too large for an archive: make them smaller");
  const json = await promisify(zstdCompress)(raw, { chunkSize: raw.length + 1024 });
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32LE(skippableMagic, 0);
  prefix.writeUInt32LE(json.length + tailBytes, 4);
  const tail = Buffer.alloc(tailBytes);
  hash("sha256", json, "buffer").copy(tail, 0);
  tail.writeUInt32LE(json.length, 32);
  tail.writeUInt32LE(raw.length, 36);
  tail.write(word, 40, "latin1");
  return Buffer.concat([prefix, json, tail]);
}

/** The positions of an archive's parts. */
export interface ArchiveLayout {
  indexAt: number;
  tableAt: number;
  footerAt: number;
}

function layoutOf({ framesBytes, index, table }: ArchiveParts): ArchiveLayout {
  const indexAt = framesBytes + prefixBytes;
  const tableAt = indexAt + index.bytes + prefixBytes;
  return { indexAt, tableAt, footerAt: tableAt + table.bytes };
}

/**
 * Reads the footer of an archive, and checks the archive's length.
 * @throws SvcError `archive_damaged`
 */
export async function readFooter(file: StoredFile, signal?: AbortSignal): Promise<IdentifiedFooter> {
  let end = await readExactly(file, Math.max(0, file.sizeBytes - firstReadBytes), file.sizeBytes, signal);
  const tail = end.subarray(-tailBytes);
  if (end.length < tailBytes || tail.toString("latin1", 40) !== word) {
    throw damaged("has no footer: it is not a complete archive");
  }
  const [length, rawLength] = [tail.readUInt32LE(32), tail.readUInt32LE(36)];
  const whole = prefixBytes + length + tailBytes;
  if (length > maxFooterBytes || rawLength > maxFooterBytes || whole > file.sizeBytes)
    throw damaged("has a damaged footer");
  if (whole > end.length) end = await readExactly(file, file.sizeBytes - whole, file.sizeBytes, signal);
  const frame = end.subarray(-whole);
  const json = frame.subarray(prefixBytes, prefixBytes + length);
  const isRight =
    isPrefix(frame, length + tailBytes) && hash("sha256", json, "buffer").equals(tail.subarray(0, 32));
  if (!isRight) throw damaged("has a damaged footer");
  const raw = await promisify(zstdDecompress)(json, { maxOutputLength: Math.max(1, rawLength) }).catch(() => {
    throw damaged("has a damaged footer");
  });
  const footer = checkFooter(parseJson(raw));
  if (raw.length !== rawLength || layoutOf(footer.parts).footerAt + whole !== file.sizeBytes) {
    throw damaged("has a different length than its footer states");
  }
  return { footer, digest: footerDigest(tail) };
}

/**
 * Yields the contents of the index and the frame table.
 * @throws SvcError `archive_damaged` if their frames are not valid
 */
export async function* readTables(
  file: StoredFile,
  parts: ArchiveParts,
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  const { framesBytes, index, table } = parts;
  yield* readIndexPart(file, parts, signal);
  yield* readPart(file, framesBytes + prefixBytes + index.bytes, table.bytes, signal);
}

/** Only the content of the index. @throws as {@link readTables} */
export function readIndexPart(
  file: StoredFile,
  { framesBytes, index }: ArchiveParts,
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  return readPart(file, framesBytes, index.bytes, signal);
}

async function* readPart(
  file: StoredFile,
  at: number,
  bytes: number,
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  const prefix = await readExactly(file, at, at + prefixBytes, signal);
  if (!isPrefix(prefix, bytes)) throw damaged("has a damaged index");
  yield* file.read(at + prefixBytes, at + prefixBytes + bytes, signal);
}

export function damaged(what: string): SvcError<"archive_damaged"> {
  return new SvcError("archive_damaged", `the archive ${what}`);
}

function isPrefix(bytes: Buffer, length: number): boolean {
  return (
    bytes.length >= prefixBytes &&
    bytes.readUInt32LE(0) === skippableMagic &&
    bytes.readUInt32LE(4) === length
  );
}

async function readExactly(
  file: StoredFile,
  start: number,
  end: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  const pieces = await Array.fromAsync(file.read(start, end, signal));
  const bytes = Buffer.concat(pieces);
  if (bytes.length !== end - start) throw damaged("is truncated");
  return bytes;
}

function parseJson(raw: Buffer): unknown {
  const json = raw.toString();
  if (hasMoreStructure(json, maxFooterStructure)) throw damaged("has a damaged footer");
  try {
    return JSON.parse(json);
  } catch {
    throw damaged("has a footer that is not valid JSON");
  }
}

const isSize: Check = (value) => isBetween(value, 0, Number.MAX_SAFE_INTEGER);

/** A line that is shown to all users who can see the app. */
const isLine: Check = (value) => isText(value) && /^[^\u0000-\u001f\u007f]{0,256}$/.test(value);

const isPart = objectOf<ArchivePart>({
  bytes: (value) => isBetween(value, 0, 2 ** 31),
  sha256: (value) => isText(value) && /^[0-9a-f]{64}$/.test(value),
});

type Origin = Record<"kind" | "url" | "source" | "branch" | "tag" | "commit", string> & {
  directory?: string;
};

/** A full object ID, which names a directory of the daemon; empty for a directory. */
const isCommit: Check = (value) => value === "" || (isText(value) && wholeCommit.test(value));

/** The properties that other code relies on. Archives may come from other hosts. */
const isFooter = objectOf<ArchiveFooter>({
  format: isInteger,
  ...{ svc_version: isLine, created_at: isLine, mode: isLine, host: isLine, since: maybe(isLine) },
  app: objectOf<ArchiveFooter["app"]>({
    ...{ id: isLine, name: isLine, package_id: isLine, runtime: isLine, version: isLine, owner: isLine },
    ...{ owner_uid: isUid, run_uid: isUid, settings: isObject },
    origin: objectOf<Omit<Origin, "kind">>({
      ...{ url: isText, source: isLine, branch: isLine, tag: isLine, commit: isCommit },
      directory: maybe(isText),
    }),
    accepted: objectOf<ArchiveFooter["app"]["accepted"]>({
      ...{ licenses: listOf(isText), permissions: listOf(isText) },
    }),
  }),
  trees: listOf(isText),
  parts: objectOf<ArchiveParts>({
    ...{ framesBytes: isSize, tarBytes: isSize, contentBytes: isSize, entries: isSize },
    ...{ index: isPart, table: isPart },
  }),
  warnings: listOf(isText),
});

function checkFooter(value: unknown): ArchiveFooter {
  if (!isObject(value)) throw damaged("has a damaged footer");
  // Readers of version 1 would treat a differential archive as full.
  if (value["format"] !== (value["since"] === undefined ? 1 : 2))
    throw damaged("has a format that this version of svc does not support");
  if (!isFooter(value)) throw damaged("has a damaged footer");
  const { app, trees } = value;
  // The owner of the files reads them, so only root's apps may have files of another user.
  if (app.owner_uid !== 0 && app.run_uid !== app.owner_uid)
    throw damaged("has files of another user than the app's owner");
  if (trees.length === 0 || trees.length > 1000 || !trees.every(isTree))
    throw damaged("has trees that an app does not have");
  const { kind, url, directory = "" } = app.origin as Origin;
  if (kind !== "git" && kind !== "directory") throw damaged("has an origin of an unknown kind");
  if (url.length > maxUrlChars || directory.length > maxUrlChars)
    throw damaged("has an origin that is too long");
  return value;
}

function isTree(tree: string): boolean {
  if (tree === "repo" || tree === "data") return true;
  const volume = volumeOfTree(tree);
  if (volume !== undefined) return /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,128}$/.test(volume);
  const names = tree.split("/");
  return (
    names.length > 1 &&
    names[0] === "volumes" &&
    !names.some((name) => ["", ".", ".."].includes(name)) &&
    !tree.includes("\0")
  );
}
