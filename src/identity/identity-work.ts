/** What work as a user takes and answers. */
import type { Readable, Writable } from "node:stream";

/** What every request may carry. */
export interface RequestOptions {
  /** Ends the work early; the request then fails with `canceled`. */
  signal?: AbortSignal | undefined;
  /** Milliseconds until the work is cancelled and fails with `deadline_exceeded`. */
  timeoutMs?: number;
}

export type EntryType = "file" | "directory" | "symlink" | "other";

/** One entry of the file system as `lstat` shows it. */
export interface EntryInfo {
  type: EntryType;
  /** Apparent size in bytes. */
  sizeBytes: number;
  /** Permission bits, such as `0o644`. */
  mode: number;
  uid: number;
  gid: number;
  /** Last modification, milliseconds since the epoch. */
  modifiedMs: number;
}

/** A name in a directory; names that are not UTF-8 are left out of listings. */
export interface ListedEntry {
  name: string;
  type: EntryType;
}

/** A place beneath a root. */
export interface Place {
  /** Absolute path that bounds the walk; it may itself be reached through symlinks. */
  root: string;
  /** Path beneath `root`. */
  path: string;
}

export interface ReadFileOptions extends RequestOptions {
  /** More than this is `resource_exhausted`; at most and by default 8 MiB. */
  maxBytes?: number;
}

export interface ListOptions extends RequestOptions {
  /** More entries than this is `resource_exhausted`. Default 10,000. */
  maxEntries?: number;
}

export interface Measured {
  /** Of each path. */
  sizes: number[];
  /** Whether all directories could be looked into: their own user may have forbidden it to themselves. */
  isWhole: boolean;
}

export interface CopyProgress {
  doneBytes: number;
  /** Known once the source has been measured. */
  totalBytes?: number;
}

export interface CopyTreeOptions extends RequestOptions {
  /** Paths relative to the source that are left out with everything beneath them. */
  exclude?: readonly string[];
  /** At most ten times a second. */
  onProgress?: (progress: CopyProgress) => void;
}

export interface CopyResult {
  /** Allocated bytes of the copied files, hard links counted once. */
  copiedBytes: number;
  /** Regular files, symlinks and directories. */
  entries: number;
}

export interface ExtractTarOptions extends RequestOptions {
  /** More bytes of archive than this is `resource_exhausted`. Default 8 GiB. */
  maxBytes?: number;
}

/** Lays a volume out of its tar. */
export type TakeVolume = (tree: string, tar: Readable) => Promise<void>;

/** A volume of the container engine. */
export interface VolumeSource {
  /** Its path in the archive. */
  tree: string;
  /** Patterns of tar(1) for paths in it that are left out. */
  excludes: readonly string[];
  /** Opens the engine's tar of it, whose names begin with `volume`. */
  tar: () => AsyncIterable<Buffer>;
}

export interface WriteArchiveOptions extends RequestOptions {
  /** Patterns of tar(1) for paths from the root that are left out. */
  exclude?: readonly string[];
  /** What comes after the trees, in their order. */
  volumes?: readonly VolumeSource[];
  /** Notes of files what tells later that they have not changed. */
  marks?: boolean;
  /** Of an archive with marks the part that has its index: files that have not changed since are named alone. */
  since?: ArchivePart & { index: () => AsyncIterable<Buffer> };
  /** Paths of files that always have their content. */
  unmarked?: readonly string[];
  /** Bytes of content so far; at most ten times a second. */
  onProgress?: (doneBytes: number) => void;
}

/** What an archive is made of beside its frames, whose bytes come first; see docs/backup-format.md. */
export interface ArchiveParts {
  /** Bytes of all frames together. */
  framesBytes: number;
  /** Bytes of tar in them. */
  tarBytes: number;
  /** Bytes of the files in it, by their apparent sizes. */
  contentBytes: number;
  entries: number;
  index: ArchivePart;
  table: ArchivePart;
}

/** The content of a skippable frame. */
export interface ArchivePart {
  bytes: number;
  /** Lower-case hex. */
  sha256: string;
}

export interface WrittenArchive extends ArchiveParts {
  /** What changed or went away meanwhile, and what an archive cannot hold; 100 at most. */
  warnings: string[];
}

/** An archive as far as its end tells. */
export interface DescribedArchive {
  parts: ArchiveParts;
  /** The uid that the files belonged to. */
  uid: number;
  /** The paths that entries may lie under. */
  trees: readonly string[];
}

export interface ReadArchiveOptions extends RequestOptions {
  /**
   * A directory beneath `root` for each tree, empty or not there, where it is laid out; null for one that `takeVolume` is
   * given. `base` has what the archive before has, for one of what changed since. Default: all is only checked.
   */
  target?: {
    root: string;
    into: readonly (string | null)[];
    base?: readonly (string | null)[];
    takeVolume?: TakeVolume;
  };
  /** Only these paths with all beneath them. Default: everything. */
  paths?: readonly string[];
  /** Numbers of the frames that come. Default: all of them. */
  frames?: readonly number[];
  /** Bytes of content so far; at most ten times a second. */
  onProgress?: (doneBytes: number) => void;
}

export interface BrowseArchiveOptions extends RequestOptions {
  /** The trees when empty. */
  directory: string;
  /** Entries to pass over. */
  after: number;
  limit: number;
}

/** An entry of an archive; names with bytes that are no UTF-8 have `\\xNN` for them. */
export interface ArchivedEntry {
  path: string;
  type: "file" | "directory" | "symlink" | "hardlink" | "other";
  sizeBytes: number;
  /** Permission bits. */
  mode: number;
  modifiedMs: number;
  target: string;
  /** Of a file's stored content, lower-case hex; else empty. */
  sha256: string;
}

/** A frame of an archive. */
export interface FramePlace {
  number: number;
  /** Bytes from the archive's start. */
  at: number;
  bytes: number;
}

export interface LocatedPaths {
  frames: FramePlace[];
  entries: number;
  contentBytes: number;
}

export interface LocatedFile {
  /** For `readFileOfArchive`. */
  path: string;
  sizeBytes: number;
  frames: FramePlace[];
}

export interface ReadArchiveResult {
  contentBytes: number;
  entries: number;
}

export interface ReadTailOptions extends RequestOptions {
  /** At least 1. */
  maxLines: number;
  /** Bounds the answer; older lines are dropped first. At most and by default 8 MiB. */
  maxBytes?: number;
}

export interface Tail {
  /** The last lines in order, each ending with a newline (but for an unfinished last one). */
  data: Buffer;
  /** Whether `maxBytes` was met before `maxLines`. */
  truncated: boolean;
}

export interface RunCommandOptions extends RequestOptions {
  /** Absolute, or a place; entered with the user's identity. Default `/`. */
  cwd?: string | Place;
  /** Added to the clean base environment (PATH, HOME, USER, LOGNAME, SHELL, LANG, TMPDIR). */
  env?: Readonly<Record<string, string>>;
  /** Fed to standard input; without it, input is `/dev/null`. */
  stdin?: Readable | Uint8Array;
  /** Takes standard output raw, with backpressure, instead of `stdout` of the result and `onLine`. Never ended. */
  stdout?: Writable;
  /** Each finished line of output, without its newline; lines longer than 16 KiB come in pieces. */
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  /** Bytes kept of each of stdout and stderr: the last ones. Default 1 MiB, at most 6 MiB. */
  maxOutputBytes?: number;
}

export interface CommandResult {
  /** `null` when a signal ended it. */
  exitCode: number | null;
  /** Such as `SIGKILL`; `null` when it exited by itself. */
  signal: string | null;
  /** The last `maxOutputBytes` of each. */
  stdout: string;
  stderr: string;
  /** Whether something of stdout or stderr was dropped. */
  truncated: boolean;
}

export interface SpawnDetachedOptions extends RequestOptions {
  /** Absolute; entered with the user's identity. Default `/`. */
  cwd?: string;
  env?: Readonly<Record<string, string>>;
  /** Written to standard input, which is then closed: a way for configuration that neither argv nor environment shows. At most 1 MiB. */
  stdin?: string;
  /** Where stdout and stderr are appended (created 0600). Default: `/dev/null`. */
  log?: Place;
}

export interface DetachedProcess {
  pid: number;
  /** Field 22 of `/proc/<pid>/stat`: with the boot id it names the process for good. */
  startTicks: number;
}
