/** Arguments and results of {@link UserHelper}. */
import type { Readable, Writable } from "node:stream";

/** Options of every request. */
export interface RequestOptions {
  /** Cancels the work; the request then fails with `canceled`. */
  signal?: AbortSignal | undefined;
  /** Milliseconds until the work is cancelled and fails with `deadline_exceeded`. */
  timeoutMs?: number;
}

export type EntryType = "file" | "directory" | "symlink" | "other";

/** One entry of the file system as `lstat` returns it. */
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

/** A name in a directory. Listings omit names that are not UTF-8. */
export interface ListedEntry {
  name: string;
  type: EntryType;
}

/** A path below a root. */
export interface HostLocation {
  /** Absolute path that bounds the walk; it may itself be reached through symlinks. */
  root: string;
  /** Path below `root`. */
  path: string;
}

export interface ReadFileOptions extends RequestOptions {
  /** A larger file fails with `too_many`. Default and maximum: 8 MiB. */
  maxBytes?: number;
}

export interface ListOptions extends RequestOptions {
  /** A larger directory fails with `too_many`. Default: 10,000. */
  maxEntries?: number;
}

export interface MeasuredSizes {
  /** One size per path. */
  sizes: number[];
  /** Whether all directories could be read: a user can forbid themselves to read a directory. */
  isComplete: boolean;
  /** Path of a directory of another user that this one may not empty: a container can give directories away. */
  barrier?: string;
}

export interface CopyProgress {
  doneBytes: number;
  /** Known once the source has been measured. */
  totalBytes?: number;
}

export interface CopyTreeOptions extends RequestOptions {
  /** Paths relative to the source, excluded with everything below them. */
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
  /** A larger archive fails with `too_many`. Default: 8 GiB. */
  maxBytes?: number;
}

/** Unpacks the tar of a volume. */
export type TakeVolume = (tree: string, tar: Readable) => Promise<void>;

/** A volume of the container engine. */
export interface VolumeSource {
  /** Path in the archive. */
  tree: string;
  /** tar(1) patterns of paths in the volume to exclude. */
  excludes: readonly string[];
  /** Opens the engine's tar of the volume, whose names begin with `volume`. */
  tar: () => AsyncIterable<Buffer>;
}

export interface WriteArchiveOptions extends RequestOptions {
  /** tar(1) patterns of paths below the root to exclude. */
  exclude?: readonly string[];
  /** Written after the trees, in this order. */
  volumes?: readonly VolumeSource[];
  /** Records for each file what is needed to detect later that it has not changed. */
  marks?: boolean;
  /** The index of an earlier archive with marks: unchanged files are stored by name only. */
  since?: ArchivePart & { index: () => AsyncIterable<Buffer> };
  /** Paths of files that are always stored with their content. */
  unmarked?: readonly string[];
  /** Bytes of content so far; at most ten times a second. */
  onProgress?: (doneBytes: number) => void;
}

/** The parts of an archive after its frames; see docs/backup-format.md. */
export interface ArchiveParts {
  /** Total bytes of all frames. */
  framesBytes: number;
  /** Bytes of tar in the frames. */
  tarBytes: number;
  /** Bytes of the files in the archive, by their apparent sizes. */
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
  /** Files that changed or disappeared during the backup, and entries that an archive cannot contain; at most 100. */
  warnings: string[];
}

/** An archive as described by its end. */
export interface DescribedArchive {
  parts: ArchiveParts;
  /** The owner of the files. */
  uid: number;
  /** The paths below which all entries are. */
  trees: readonly string[];
}

export interface ReadArchiveOptions extends RequestOptions {
  /**
   * `into`: for each tree an empty or missing directory below `root` to unpack to, or null for a volume that
   * `takeVolume` unpacks. `base`: the unpacked previous archive, for an archive of changes. Default: only verify.
   */
  target?: {
    root: string;
    into: readonly (string | null)[];
    base?: readonly (string | null)[];
    takeVolume?: TakeVolume;
  };
  /** Only these paths with everything below them. Default: everything. */
  paths?: readonly string[];
  /** Numbers of the frames in the input. Default: all. */
  frames?: readonly number[];
  /** Bytes of content so far; at most ten times a second. */
  onProgress?: (doneBytes: number) => void;
}

export interface BrowseArchiveOptions extends RequestOptions {
  /** Empty: list the trees. */
  directory: string;
  /** Entries to skip. */
  after: number;
  limit: number;
}

/** An entry of an archive. Bytes of names that are not UTF-8 are written as `\\xNN`. */
export interface ArchivedEntry {
  path: string;
  type: "file" | "directory" | "symlink" | "hardlink" | "other";
  sizeBytes: number;
  /** Permission bits. */
  mode: number;
  modifiedMs: number;
  target: string;
  /** Hash of a file's stored content in lower-case hex, or empty. */
  sha256: string;
}

/** A frame of an archive. */
export interface FramePlace {
  number: number;
  /** Bytes from the start of the archive. */
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
  /** Limits the result; the oldest lines are dropped first. Default and maximum: 8 MiB. */
  maxBytes?: number;
}

export interface Tail {
  /** The last lines in order. Each ends with a newline, except an unfinished last one. */
  data: Buffer;
  /** Whether `maxBytes` was reached before `maxLines`. */
  truncated: boolean;
}

export interface RunCommandOptions extends RequestOptions {
  /** Absolute, or a path below a root; entered as the user. Default: `/`. */
  cwd?: string | HostLocation;
  /** Added to the clean base environment (PATH, HOME, USER, LOGNAME, SHELL, LANG, TMPDIR). */
  env?: Readonly<Record<string, string>>;
  /** Written to standard input; default: `/dev/null`. */
  stdin?: Readable | Uint8Array;
  /** Receives standard output unchanged, with backpressure, instead of `stdout` of the result and `onLine`. Never ended. */
  stdout?: Writable;
  /** Called with each finished line of output, without its newline; lines longer than 16 KiB are split. */
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  /** The last bytes of stdout and of stderr to return. Default: 1 MiB; maximum: 6 MiB each. */
  maxOutputBytes?: number;
}

export interface CommandResult {
  /** `null` if a signal ended the program. */
  exitCode: number | null;
  /** Such as `SIGKILL`; `null` if the program exited. */
  signal: string | null;
  /** The last `maxOutputBytes` of each. */
  stdout: string;
  stderr: string;
  /** Whether part of stdout or stderr was dropped. */
  truncated: boolean;
}

export interface SpawnDetachedOptions extends RequestOptions {
  /** Absolute; entered as the user. Default: `/`. */
  cwd?: string;
  env?: Readonly<Record<string, string>>;
  /**
   * Written to standard input, which is then closed. Passes configuration that must not show in argv or the
   * environment. At most 1 MiB.
   */
  stdin?: string;
  /** File to append stdout and stderr to (created with mode 0600). Default: `/dev/null`. */
  log?: HostLocation;
}

export interface DetachedProcess {
  pid: number;
  /** Field 22 of `/proc/<pid>/stat`. Together with the boot ID it identifies the process uniquely. */
  startTicks: number;
}
