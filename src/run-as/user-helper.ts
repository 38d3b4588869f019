/**
 * File and process operations performed as a user: the daemon itself never touches a user's tree. Each method runs in a helper process
 * with the user's uid, gid, all groups, no capabilities and `no_new_privs`, so that the kernel checks permissions. A daemon that is not
 * root uses the same helper as its own user, and rejects any other uid.
 *
 * File operations take a `root` (absolute, chosen by the daemon) and a `path` below it, relative or absolute; `"."` is the root itself.
 * Symlinks below `root` are never followed (`not_possible`). NUL bytes, `..` and paths outside of `root` fail with `invalid_request`.
 *
 * Errors of all methods, as {@link SvcError}: `not_found` (ENOENT), `already_exists`, `denied`, `not_possible` (a
 * symlink, a wrong kind of file, a directory that is not empty), `disk_full`, `too_many` (a limit of the request),
 * `canceled`, `deadline_exceeded`, `unavailable` (the helper died). Messages contain paths relative to `root`.
 */
import { randomUUID } from "node:crypto";
import { isAbsolute, relative } from "node:path";
import { Readable, type Writable } from "node:stream";
import { SvcError } from "../errors.ts";
import { limitBytes, writeTo } from "../lib/byte-streams.ts";
import { answerStream } from "./answer-stream.ts";
import * as answers from "./answers.ts";
import { maxDataBytes } from "./helper/frames.mjs";
import type {
  ArchivedEntry,
  BrowseArchiveOptions,
  CommandResult,
  CopyResult,
  CopyTreeOptions,
  DescribedArchive,
  DetachedProcess,
  EntryInfo,
  ExtractTarOptions,
  ListOptions,
  ListedEntry,
  LocatedFile,
  LocatedPaths,
  MeasuredSizes,
  HostLocation,
  ReadArchiveOptions,
  ReadArchiveResult,
  ReadFileOptions,
  ReadTailOptions,
  RequestOptions,
  RunCommandOptions,
  SpawnDetachedOptions,
  Tail,
  WriteArchiveOptions,
  WrittenArchive,
} from "./user-helper-types.ts";
import type { Op } from "./helper-protocol.ts";
import type { Ask, HelperAnswer, HelperRequest } from "./pending-request.ts";
import type { User } from "./user.ts";
import { VolumeReceiver, volumePieces } from "./volume-stream.ts";

/** Milliseconds for short work, for a walk over a tree, for long work. */
const quickMs = 30_000;
const walkMs = 10 * 60_000;
const longMs = 60 * 60_000;
const archiveMs = 24 * longMs;

/** Largest file that is sent in one message. */
const maxFileBytes = maxDataBytes / 2;
const maxOutputBytes = 6 << 20;
const maxArchiveBytes = 8 * 2 ** 30;

/** A request without deadline and signal, which come from the caller's options. */
type Work<O extends Op> = Omit<HelperRequest<O>, "timeoutMs" | "signal">;

/**
 * File and process operations performed as one user. Get it with {@link UserHelpers.as}. It stays valid; the helper
 * process is started when needed.
 */
export class UserHelper {
  readonly user: User;
  readonly #ask: Ask;

  constructor(user: User, ask: Ask) {
    this.user = user;
    this.#ask = ask;
  }

  /** `lstat`; `undefined` if nothing is there. */
  async stat(root: string, path: string, options: RequestOptions = {}): Promise<EntryInfo | undefined> {
    const work = { op: "stat" as const, args: { root, path }, subject: shown(root, path) };
    return answers.readEntryInfo((await this.#do(work, quickMs, options)).value);
  }

  /** The names of a directory, sorted by code unit. */
  async list(root: string, path: string, options: ListOptions = {}): Promise<ListedEntry[]> {
    const { maxEntries = 10_000 } = options;
    const work = { op: "list" as const, args: { root, path, maxEntries }, subject: shown(root, path) };
    return answers.readListing((await this.#do(work, quickMs, options)).data);
  }

  /** Reads a whole regular file. FIFOs, devices, directories and symlinks are rejected at once. */
  async readFile(root: string, path: string, options: ReadFileOptions = {}): Promise<Buffer> {
    const maxBytes = Math.min(options.maxBytes ?? maxFileBytes, maxFileBytes);
    const work = { op: "readFile" as const, args: { root, path, maxBytes }, subject: shown(root, path) };
    return (await this.#do(work, quickMs, options)).data;
  }

  /** Replaces a file atomically and durably: temporary file, fsync, rename, fsync of the directory. At most 8 MiB. @param options `mode` defaults to 0o600 */
  async writeFile(
    root: string,
    path: string,
    content: string | Uint8Array,
    { mode = 0o600, ...options }: RequestOptions & { mode?: number } = {},
  ): Promise<void> {
    const data = typeof content === "string" ? Buffer.from(content) : content;
    const subject = shown(root, path);
    if (data.length > maxFileBytes) throw tooLarge(subject, maxFileBytes);
    await this.#do({ op: "writeFile", args: { root, path, mode }, data, subject }, quickMs, options);
  }

  /** Creates each directory and its missing parents, with mode 0o700; existing ones stay unchanged. Durable. */
  async makeDirs(root: string, paths: readonly string[], options: RequestOptions = {}): Promise<void> {
    const subject = paths.map((path) => shown(root, path)).join(", ");
    await this.#do({ op: "makeDirs", args: { root, paths }, subject }, quickMs, options);
  }

  /** `rename(2)`, durable. Replaces a file or an empty directory. */
  async rename(root: string, from: string, to: string, options: RequestOptions = {}): Promise<void> {
    const subject = `${shown(root, from)} to ${shown(root, to)}`;
    await this.#do({ op: "rename", args: { root, from, to }, subject }, quickMs, options);
  }

  /** Removes a file or a whole tree; succeeds if nothing is there. For the root itself (`"."`), removes only its content. */
  async removeTree(
    root: string,
    path: string,
    options: RequestOptions = {},
  ): Promise<{ freedBytes: number }> {
    const work = { op: "removeTree" as const, args: { root, path }, subject: shown(root, path) };
    return answers.counts((await this.#do(work, walkMs, options)).value, "freedBytes");
  }

  /** Allocated bytes of each path, with hard links counted once in total; 0 for missing paths. */
  async measure(
    root: string,
    paths: readonly string[],
    options: RequestOptions = {},
  ): Promise<MeasuredSizes> {
    const subject = paths.map((path) => shown(root, path)).join(", ");
    const { value } = await this.#do({ op: "measure", args: { root, paths }, subject }, walkMs, options);
    return answers.readMeasured(value, paths.length);
  }

  /**
   * Copies a tree with modes, times, symlinks (as they are), hard links, holes, and reflinks if the file system
   * supports them. Durable. `to` must be missing or an empty directory. On failure the partial copy stays; the caller
   * removes it.
   */
  async copyTree(from: HostLocation, to: HostLocation, options: CopyTreeOptions = {}): Promise<CopyResult> {
    const { exclude = [], onProgress } = options;
    const work = {
      op: "copyTree" as const,
      args: { from, to, exclude },
      subject: shown(from.root, from.path),
      onEvent: onProgress && ((event: unknown) => onProgress(answers.readCopyProgress(event))),
    };
    return answers.counts((await this.#do(work, longMs, options)).value, "copiedBytes", "entries");
  }

  /**
   * Unpacks an uncompressed tar stream into a directory, which is created if missing. Owner and special bits are not
   * restored.
   */
  async extractTar(
    root: string,
    path: string,
    archive: Readable,
    options: ExtractTarOptions = {},
  ): Promise<void> {
    const { maxBytes = maxArchiveBytes, ...limits } = options;
    await this.makeDirs(root, [path], limits);
    // Without -p, tar drops special bits. tar itself rejects names outside of the directory.
    const argv = ["tar", "--extract", "--no-same-owner", "--no-same-permissions", "--file=-"];
    const subject = `the archive for ${shown(root, path)}`;
    const stdin = limitBytes(archive, maxBytes, () => tooLarge(subject, maxBytes));
    const { exitCode, stderr } = await this.runCommand(argv, { ...limits, stdin, cwd: { root, path } });
    if (exitCode !== 0) {
      throw new SvcError("not_possible", `the archive cannot be unpacked: ${stderr.trim().slice(-1024)}`);
    }
  }

  /**
   * Writes trees, and volumes of the container engine, as an archive: zstd frames of PAX tar, then its index and the
   * table of its frames. Missing trees are skipped. Never ends `output`.
   */
  async writeArchive(
    root: string,
    trees: readonly string[],
    output: Writable,
    options: WriteArchiveOptions = {},
  ): Promise<WrittenArchive> {
    const { exclude = [], volumes = [], marks = false, since, unmarked = [], onProgress } = options;
    const runId = randomUUID();
    const before = since === undefined ? null : { indexBytes: since.bytes, indexSha256: since.sha256 };
    const input = async function* () {
      if (since !== undefined) yield* since.index();
      yield* volumePieces(volumes);
    };
    const described = volumes.map(({ tree, excludes }) => ({ tree, excludes }));
    const work = {
      op: "writeArchive" as const,
      args: {
        ...{ root, trees, excludes: exclude, volumes: described, runId },
        ...{ marks, since: before, unmarked },
      },
      subject: "the backup",
      runId,
      input: Readable.from(input()),
      output: writeTo(output),
      onEvent: onProgress && ((event: unknown) => onProgress(answers.readCopyProgress(event).doneBytes)),
    };
    return answers.readWrittenArchive((await this.#do(work, archiveMs, options)).value);
  }

  /**
   * Reads an archive, verifies it against its tables, and unpacks it if there is a target. On failure unpacked files
   * stay; the caller removes them.
   * @param input the content of the index, the content of the table, then frames
   * @throws SvcError `archive_damaged`
   */
  async readArchive(
    archive: DescribedArchive,
    input: Readable,
    options: ReadArchiveOptions = {},
  ): Promise<ReadArchiveResult> {
    const { target, paths = [], frames, onProgress } = options;
    const runId = randomUUID();
    const into = target && {
      ...{ root: target.root, into: target.into },
      ...(target.base && { base: target.base }),
    };
    const take = target?.takeVolume;
    const volumes = take && new VolumeReceiver(archive.trees, archive.uid, take);
    const work = {
      op: "readArchive" as const,
      args: { ...described(archive), target: into, paths, frames, runId },
      subject: "the archive",
      runId,
      input,
      output: volumes && ((chunk: Uint8Array) => volumes.push(chunk)),
      onEvent: onProgress && ((event: unknown) => onProgress(answers.readCopyProgress(event).doneBytes)),
    };
    try {
      return answers.counts((await this.#do(work, archiveMs, options)).value, "contentBytes", "entries");
    } catch (error) {
      await volumes?.abort(error);
      throw error;
    }
  }

  /** Lists the direct entries of a directory in an archive. @param tables the contents of the index and of the table */
  async browseArchive(
    archive: DescribedArchive,
    tables: Readable,
    { directory, after, limit, ...options }: BrowseArchiveOptions,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    const args = { ...described(archive), directory, after, limit };
    const work = { op: "browseArchive" as const, args, subject: directory || "the archive", input: tables };
    return answers.readArchivedEntries(await this.#do(work, walkMs, options));
  }

  /** Finds the frames that contain paths and everything below them. @throws SvcError `not_found` */
  async locateInArchive(
    archive: DescribedArchive,
    tables: Readable,
    paths: readonly string[],
    options: RequestOptions = {},
  ): Promise<LocatedPaths> {
    const args = { ...described(archive), paths };
    const work = { op: "locateInArchive" as const, args, subject: paths.join(", "), input: tables };
    return answers.readLocatedPaths(await this.#do(work, walkMs, options));
  }

  /** Finds the frames that contain a file. @throws SvcError `not_found`; `denied` if it is not a regular file */
  async locateFileInArchive(
    archive: DescribedArchive,
    tables: Readable,
    path: string,
    options: RequestOptions = {},
  ): Promise<LocatedFile> {
    const args = { ...described(archive), path };
    const work = { op: "locateFileInArchive" as const, args, subject: path, input: tables };
    return answers.readLocatedFile(await this.#do(work, walkMs, options));
  }

  /** Reads a file of an archive. @param input the contents of the index and of the table, then the file's frames */
  readFileOfArchive(
    archive: DescribedArchive,
    input: Readable,
    { path, frames }: LocatedFile,
    options: RequestOptions = {},
  ): Readable {
    const args = { ...described(archive), path, frames: frames.map(({ number }) => number) };
    const work = { op: "readFileOfArchive" as const, args, subject: "the file", input };
    return answerStream(this.#ask, { ...work, timeoutMs: longMs, ...options });
  }

  /** Reads the last lines of files backwards. Files are given oldest first; missing ones are skipped. */
  async readTail(root: string, files: readonly string[], options: ReadTailOptions): Promise<Tail> {
    const { maxLines } = options;
    const maxBytes = Math.min(options.maxBytes ?? maxFileBytes, maxFileBytes);
    const subject = files.map((path) => shown(root, path)).join(", ");
    const args = { root, files, maxLines, maxBytes };
    const { value, data } = await this.#do({ op: "readTail", args, subject }, quickMs, options);
    return { data, truncated: answers.readTruncated(value) };
  }

  /** Reads a regular file from `offset`, with backpressure. Destroying the stream cancels the work. */
  openRead(root: string, path: string, options: RequestOptions & { offset?: number } = {}): Readable {
    const { offset = 0, ...limits } = options;
    const work = { op: "openRead" as const, args: { root, path, offset }, subject: shown(root, path) };
    return answerStream(this.#ask, { ...work, timeoutMs: longMs, ...limits });
  }

  /**
   * Runs a program in its own session until it exits. On cancellation, at the deadline, or if the daemon dies, its
   * process group gets SIGTERM, and SIGKILL 5 s later. Processes with its `SVC_RUN_ID` in the environment are killed
   * even after a normal exit. A non-zero exit status is a result, not an error. @throws SvcError `not_found` if the
   * program or cwd does not exist
   */
  async runCommand(argv: readonly string[], options: RunCommandOptions = {}): Promise<CommandResult> {
    const { cwd = "/", env = {}, stdin, stdout, onLine } = options;
    const runId = randomUUID();
    const args = {
      argv,
      cwd,
      env,
      runId,
      input: stdin !== undefined,
      output: stdout !== undefined,
      lines: onLine !== undefined,
      maxOutputBytes: Math.min(options.maxOutputBytes ?? 1 << 20, maxOutputBytes),
    };
    const work = {
      op: "runCommand" as const,
      args,
      subject: argv[0] ?? "",
      runId,
      // One element, instead of one per byte.
      input: stdin instanceof Uint8Array ? Readable.from([stdin]) : stdin,
      output: stdout && writeTo(stdout),
      onEvent: onLine && reportLines(onLine),
    };
    return answers.readCommandResult(await this.#do(work, longMs, options));
  }

  /** Starts a program in its own session that outlives the daemon. Resolves when the program has been executed. */
  async spawnDetached(argv: readonly string[], options: SpawnDetachedOptions = {}): Promise<DetachedProcess> {
    const { cwd = "/", env = {}, stdin, log } = options;
    const args = { argv, cwd, env, stdin, log };
    const work = { op: "spawnDetached" as const, args, subject: argv[0] ?? "" };
    return answers.counts((await this.#do(work, quickMs, options)).value, "pid", "startTicks");
  }

  #do<O extends Op>(
    work: Work<O>,
    defaultMs: number,
    { signal, timeoutMs = defaultMs }: RequestOptions,
  ): Promise<HelperAnswer<O>> {
    return this.#ask({ ...work, signal, timeoutMs });
  }
}

function described({ parts, uid, trees }: DescribedArchive) {
  const { index, table, tarBytes, contentBytes, entries } = parts;
  const sizes = {
    indexBytes: index.bytes,
    indexSha256: index.sha256,
    tableBytes: table.bytes,
    tableSha256: table.sha256,
    ...{ tarBytes, contentBytes, entries },
  };
  return { sizes, uid, trees };
}

function reportLines(onLine: NonNullable<RunCommandOptions["onLine"]>): (event: unknown) => void {
  return (event) => {
    const { stream, lines } = answers.readLines(event);
    for (const line of lines) onLine(line, stream);
  };
}

/** How a path appears in messages: relative to its root, so that directories of the daemon are not shown. */
function shown(root: string, path: string): string {
  const below = isAbsolute(path) ? relative(root, path) : path;
  return below.startsWith("../") ? path : below || ".";
}

function tooLarge(subject: string, maxBytes: number): SvcError {
  return new SvcError("too_many", `${subject} is larger than ${maxBytes} bytes`);
}
