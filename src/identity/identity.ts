/**
 * Work done as a user: nothing inside a user's tree is touched by the daemon itself. Each method here runs in a
 * helper process that has the user's uid, gid, all groups, no capabilities and `no_new_privs`, so the kernel decides.
 * A daemon that is not root uses the same helper with its own identity, and refuses any other uid.
 *
 * Paths: every operation on files takes a `root` (absolute, chosen by the daemon) and a `path` beneath it, relative
 * or absolute; `"."` is the root itself. No symlink below `root` is ever followed: a path that crosses one fails with
 * `failed_precondition`. NUL bytes, `..` and paths outside of `root` fail with `invalid_argument`.
 *
 * Errors of all methods, as {@link SvcError}: `not_found` (ENOENT), `already_exists`, `permission_denied`,
 * `failed_precondition` (a symlink, a wrong kind of file, a directory that is not empty), `resource_exhausted`
 * (disk or quota full, a bound of the request), `canceled`, `deadline_exceeded`, `unavailable` (the helper died).
 * Messages name paths relative to `root`.
 */
import type { Readable, Writable } from "node:stream";
import type { User } from "./user.ts";

/** What every request may carry. */
export interface RequestOptions {
  /** Ends the work early; the request then fails with `canceled`. */
  signal?: AbortSignal;
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

export interface WriteFileOptions extends RequestOptions {
  /** Exact permission bits. Default 0o600. */
  mode?: number;
}

export interface MakeDirsOptions extends RequestOptions {
  /** Exact permission bits of each directory that is made. Default 0o700. */
  mode?: number;
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
  /** Wait until the copy is on disk. Default true. */
  sync?: boolean;
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
  /** For {@link Identity.readFileOfArchive}. */
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
  /** Absolute; entered with the user's identity. Default `/`. */
  cwd?: string;
  /** Added to the clean base environment (PATH, HOME, USER, LOGNAME, SHELL, LANG, TMPDIR). */
  env?: Readonly<Record<string, string>>;
  /** 0o022 (default) or 0o077, say. */
  umask?: number;
  /** Fed to standard input; without it, input is `/dev/null`. */
  stdin?: Readable | Uint8Array;
  /** Takes standard output raw, with backpressure, instead of `stdout` of the result and `onLine`. Never ended. */
  stdout?: Writable;
  /** One pipe for standard output and standard error, in the order of the writes; all of it counts as standard output. */
  merged?: boolean;
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
  umask?: number;
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

/** One user's hands. Get it with {@link Identities.as}; it stays valid, its helper is started when needed. */
export interface Identity {
  readonly user: User;

  /** `lstat`; `undefined` when nothing is there. */
  stat(root: string, path: string, options?: RequestOptions): Promise<EntryInfo | undefined>;
  /** The names of a directory, sorted by code unit. */
  list(root: string, path: string, options?: ListOptions): Promise<ListedEntry[]>;
  /** A whole regular file. FIFOs, devices, directories and symlinks are refused at once. */
  readFile(root: string, path: string, options?: ReadFileOptions): Promise<Buffer>;
  /** Replaces a file atomically and durably: temporary file, fsync, rename, fsync of the directory. At most 8 MiB. */
  writeFile(root: string, path: string, data: string | Uint8Array, options?: WriteFileOptions): Promise<void>;
  /** Makes each directory and its missing parents; one that exists is left as it is. Durable. */
  makeDirs(root: string, paths: readonly string[], options?: MakeDirsOptions): Promise<void>;
  /** `rename(2)`, durable. Replaces a file or an empty directory. */
  rename(root: string, from: string, to: string, options?: RequestOptions): Promise<void>;
  /** Removes a file or a whole tree; nothing there is fine. For the root itself (`"."`) only its content goes. */
  removeTree(root: string, path: string, options?: RequestOptions): Promise<{ freedBytes: number }>;
  /** Allocated bytes of each path, hard links counted once over all of them; 0 for what is not there. */
  measure(root: string, paths: readonly string[], options?: RequestOptions): Promise<Measured>;
  /**
   * Copies a tree with modes, times, symlinks (as they are), hard links, holes and reflinks where the file system has them.
   * `to` must not exist, or be an empty directory. What was copied stays when it fails: the caller removes it.
   */
  copyTree(from: Place, to: Place, options?: CopyTreeOptions): Promise<CopyResult>;
  /** Unpacks an uncompressed tar stream into a directory, which is made when missing. Owner and special bits are not restored. */
  extractTar(root: string, path: string, archive: Readable, options?: ExtractTarOptions): Promise<void>;
  /**
   * Streams trees, and volumes of the container engine, as an archive: zstd frames of PAX tar, then its index and the table
   * of its frames. Trees that are not there are passed over. Never ends `output`.
   */
  writeArchive(
    root: string,
    trees: readonly string[],
    output: Writable,
    options?: WriteArchiveOptions,
  ): Promise<WrittenArchive>;
  /**
   * Reads an archive back, compares all that comes with its tables, and lays it out where there is a target. What was laid
   * out stays when it fails: the caller removes it.
   * @param input the content of the index, that of the table, then frames
   * @throws SvcError `archive_damaged`
   */
  readArchive(
    archive: DescribedArchive,
    input: Readable,
    options?: ReadArchiveOptions,
  ): Promise<ReadArchiveResult>;
  /** The entries right in a directory of an archive. @param tables the contents of the index and of the table */
  browseArchive(
    archive: DescribedArchive,
    tables: Readable,
    options: BrowseArchiveOptions,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }>;
  /** The frames that hold paths and all beneath them. @throws SvcError `not_found` */
  locateInArchive(
    archive: DescribedArchive,
    tables: Readable,
    paths: readonly string[],
    options?: RequestOptions,
  ): Promise<LocatedPaths>;
  /** The frames that hold a file. @throws SvcError `not_found`, `denied` for what is no regular file */
  locateFileInArchive(
    archive: DescribedArchive,
    tables: Readable,
    path: string,
    options?: RequestOptions,
  ): Promise<LocatedFile>;
  /** The bytes of a file. @param input the contents of the index and of the table, then its frames */
  readFileOfArchive(
    archive: DescribedArchive,
    input: Readable,
    file: LocatedFile,
    output: Writable,
    options?: RequestOptions,
  ): Promise<void>;
  /** The last lines of files given oldest first, read backwards. Files that are missing are skipped. */
  readTail(root: string, files: readonly string[], options: ReadTailOptions): Promise<Tail>;
  /** The bytes of a regular file from `offset` on, with backpressure. Destroying the stream ends the work. */
  openRead(root: string, path: string, options?: RequestOptions & { offset?: number }): Readable;

  /**
   * Runs a program in its own session to its end. On cancel, deadline or death of the daemon its process group gets
   * SIGTERM, 5 s later SIGKILL; whatever carries its `SVC_RUN_ID` in the environment is killed too, also after a normal end.
   * A non-zero exit is a result, not an error. @throws `not_found` when there is no such program or cwd.
   */
  runCommand(argv: readonly string[], options?: RunCommandOptions): Promise<CommandResult>;
  /** Starts a program in its own session that outlives the daemon. Resolves when it has been executed. */
  spawnDetached(argv: readonly string[], options?: SpawnDetachedOptions): Promise<DetachedProcess>;
}
