/** What work on files of the host takes and answers. */
import type { SvcError } from "../errors.ts";

export type HostEntryType =
  "file" | "directory" | "symlink" | "socket" | "fifo" | "block_device" | "char_device";

/** What something is; names and link targets are spelled (`helper/host/spelling.mjs`). */
export interface HostEntry {
  name: string;
  type: HostEntryType;
  sizeBytes: number;
  /** Permission bits. */
  mode: number;
  uid: number;
  gid: number;
  modifiedMs: number;
  /** Empty for what is no regular file. */
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
  /** The last `offset` bytes instead. */
  fromEnd?: boolean;
  /** The whole file instead, when it has another entity tag. */
  ifTag?: string;
}

export interface HostContent {
  entry: HostEntry;
  /** The first byte that comes. */
  start: number;
  /** Bytes that come; -1 when there are none at that place. */
  length: number;
  /** Each piece is lent until the next is asked for. To be taken once. */
  bytes: AsyncIterable<Buffer>;
}

export interface UploadOptions {
  overwrite: boolean;
  /** Empty: whatever is there. */
  ifMatch: string;
  mode?: number | undefined;
  /** Whether nobody else looks at the memory of the content's pieces. */
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

export interface WantedAttributes {
  mode?: number | undefined;
  uid?: number | undefined;
  gid?: number | undefined;
  recursive: boolean;
}

export interface SearchOptions {
  /** A pattern with `*`, `?` and `[…]`; empty for all names. */
  name: string;
  /** Empty: files are not read. */
  content: string;
  regex: boolean;
  ignoreCase: boolean;
  hidden: boolean;
  limit: number;
}

/** How many were looked at so far, a match with its path below the start, or the end. */
export type SearchRecord =
  | { kind: "count"; entries: number }
  | { kind: "match"; where: string; entry: HostEntry; line?: number; text: string }
  | { kind: "end"; entries: number; matches: number; failed: number; truncated: boolean };

/** How many were looked at so far, or what a directory takes, by its path below the start. */
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

export interface UnpackLimits {
  maxEntries: number;
  /** Of what comes out of the archive. */
  maxBytes: number;
  /** How many times larger than the archive that may be. */
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

/** Another name under which something is made. */
export interface Stage {
  name: string;
  /** Whose hands make it. */
  uid: number;
  /** Paths that it may lie beside. */
  beside: readonly string[];
}

/** Remembers stages for as long as they may be there. */
export interface StageRecord {
  keep: (stage: Stage) => Promise<void>;
  forget: (name: string) => Promise<void>;
}
