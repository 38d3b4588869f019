/** Arguments and results of work on files of the host. */
import type { SvcError } from "../errors.ts";

export type HostEntryType =
  "file" | "directory" | "symlink" | "socket" | "fifo" | "block_device" | "char_device";

/** An entry of the file system. Names and link targets are escaped (`helper/host/spelling.mjs`). */
export interface HostEntry {
  name: string;
  type: HostEntryType;
  sizeBytes: number;
  /** Permission bits. */
  mode: number;
  uid: number;
  gid: number;
  modifiedMs: number;
  /** Empty unless the entry is a regular file. */
  tag: string;
  target: string;
}

export interface HostPage {
  directory: HostEntry;
  entries: HostEntry[];
  more: boolean;
}

export interface ReadRange {
  offset: number;
  length?: number | undefined;
  /** Read the last `offset` bytes instead. */
  fromEnd?: boolean;
  /** Read the whole file instead if its entity tag differs. */
  ifTag?: string;
}

export interface HostContent {
  entry: HostEntry;
  /** Offset of the first byte. */
  start: number;
  /** Number of bytes; -1 if the range is beyond the end. */
  length: number;
  /** Each piece is only valid until the next one is requested. Can be read once. */
  bytes: AsyncIterable<Buffer>;
}

export interface UploadOptions {
  overwrite: boolean;
  /** Empty: any version. */
  ifMatch: string;
  mode?: number | undefined;
  /** Whether the memory of the content's pieces has no other user. */
  ownsContent?: boolean;
}

export interface HostFailure {
  path: string;
  error: SvcError;
}

export interface Deleted {
  deleted: string[];
  failures: HostFailure[];
  failureCount: number;
}

export interface RequestedAttributes {
  mode?: number | undefined;
  uid?: number | undefined;
  gid?: number | undefined;
  recursive: boolean;
}

export interface SearchOptions {
  /** A pattern with `*`, `?` and `[…]`; empty for all names. */
  name: string;
  /** Empty: do not read files. */
  content: string;
  regex: boolean;
  ignoreCase: boolean;
  hidden: boolean;
  limit: number;
}

/** A count of examined entries, a match with its path below the start, or the end. */
export type SearchRecord =
  | { kind: "count"; entries: number }
  | { kind: "match"; where: string; entry: HostEntry; line?: number; text: string }
  | { kind: "end"; entries: number; matches: number; failed: number; truncated: boolean };

/** A count of examined entries, or the usage of a directory with its path below the start. */
export type UsageRecord =
  | { kind: "count"; entries: number }
  | {
      kind: "sum";
      where: string;
      level: number;
      diskBytes: number;
      sizeBytes: number;
      entries: number;
      failed: number;
    };

export type ArchiveFormat = "tar.gz" | "tar.zst" | "zip";

export type UnpackFormat = ArchiveFormat | "tar" | "tar.xz" | "tar.bz2";

export interface UnpackLimits {
  maxEntries: number;
  /** Bytes that may come out of the archive. */
  maxBytes: number;
  /** How many times larger than the archive its content may be. */
  maxRatio: number;
}

export interface Unpacked {
  entry: HostEntry;
  entries: number;
  bytes: number;
}

export interface HostProgress {
  doneBytes?: number;
  doneEntries?: number;
}

export interface HostWork {
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: HostProgress) => void) | undefined;
}

/** A temporary name of unfinished work. */
export interface Stage {
  name: string;
  /** The user who does the work. */
  uid: number;
  /** Paths next to which the temporary name may be. */
  beside: readonly string[];
}

/** Records temporary names for as long as they may exist. */
export interface StageRecord {
  keep: (stage: Stage) => Promise<void>;
  forget: (name: string) => Promise<void>;
}
