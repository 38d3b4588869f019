/** The typed face of one user's helper. */
import { randomUUID } from "node:crypto";
import { isAbsolute, relative } from "node:path";
import { PassThrough, Readable, type Writable } from "node:stream";
import { SvcError } from "../errors.ts";
import { limitBytes } from "../lib/byte-limit.ts";
import { writeTo } from "../lib/write-to.ts";
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
  Identity,
  ListOptions,
  ListedEntry,
  LocatedFile,
  LocatedPaths,
  Measured,
  MakeDirsOptions,
  Place,
  ReadArchiveOptions,
  ReadArchiveResult,
  ReadFileOptions,
  ReadTailOptions,
  RequestOptions,
  RunCommandOptions,
  SpawnDetachedOptions,
  Tail,
  WriteArchiveOptions,
  WriteFileOptions,
  WrittenArchive,
} from "./identity.ts";
import type { Op } from "./helper-protocol.ts";
import type { Ask, HelperAnswer, HelperRequest } from "./pending-request.ts";
import type { User } from "./user.ts";
import { VolumeReceiver, volumePieces } from "./volume-stream.ts";

/** Milliseconds for what is small, for a walk over a tree, for work of any size. */
const quickMs = 30_000;
const walkMs = 10 * 60_000;
const longMs = 60 * 60_000;
const archiveMs = 24 * longMs;

/** Most bytes of a file that travels in one message. */
const maxFileBytes = maxDataBytes / 2;
const maxOutputBytes = 6 << 20;
const maxArchiveBytes = 8 * 2 ** 30;

/** A request but for its deadline and signal, which come from the caller's options. */
type Work<O extends Op> = Omit<HelperRequest<O>, "timeoutMs" | "signal">;

export class UserIdentity implements Identity {
  readonly user: User;
  readonly #ask: Ask;

  constructor(user: User, ask: Ask) {
    this.user = user;
    this.#ask = ask;
  }

  async stat(root: string, path: string, options: RequestOptions = {}): Promise<EntryInfo | undefined> {
    const work = { op: "stat" as const, args: { root, path }, subject: shown(root, path) };
    return answers.readEntryInfo((await this.#do(work, quickMs, options)).value);
  }

  async list(root: string, path: string, options: ListOptions = {}): Promise<ListedEntry[]> {
    const { maxEntries = 10_000 } = options;
    const work = { op: "list" as const, args: { root, path, maxEntries }, subject: shown(root, path) };
    return answers.readListing((await this.#do(work, quickMs, options)).data);
  }

  async readFile(root: string, path: string, options: ReadFileOptions = {}): Promise<Buffer> {
    const maxBytes = Math.min(options.maxBytes ?? maxFileBytes, maxFileBytes);
    const work = { op: "readFile" as const, args: { root, path, maxBytes }, subject: shown(root, path) };
    return (await this.#do(work, quickMs, options)).data;
  }

  async writeFile(
    root: string,
    path: string,
    content: string | Uint8Array,
    options: WriteFileOptions = {},
  ): Promise<void> {
    const data = typeof content === "string" ? Buffer.from(content) : content;
    const subject = shown(root, path);
    if (data.length > maxFileBytes) throw tooLarge(subject, maxFileBytes);
    const { mode = 0o600 } = options;
    await this.#do({ op: "writeFile", args: { root, path, mode }, data, subject }, quickMs, options);
  }

  async makeDirs(root: string, paths: readonly string[], options: MakeDirsOptions = {}): Promise<void> {
    const { mode = 0o700 } = options;
    const subject = paths.map((path) => shown(root, path)).join(", ");
    await this.#do({ op: "makeDirs", args: { root, paths, mode }, subject }, quickMs, options);
  }

  async rename(root: string, from: string, to: string, options: RequestOptions = {}): Promise<void> {
    const subject = `${shown(root, from)} to ${shown(root, to)}`;
    await this.#do({ op: "rename", args: { root, from, to }, subject }, quickMs, options);
  }

  async removeTree(
    root: string,
    path: string,
    options: RequestOptions = {},
  ): Promise<{ freedBytes: number }> {
    const work = { op: "removeTree" as const, args: { root, path }, subject: shown(root, path) };
    return answers.readFreed((await this.#do(work, walkMs, options)).value);
  }

  async measure(root: string, paths: readonly string[], options: RequestOptions = {}): Promise<Measured> {
    const subject = paths.map((path) => shown(root, path)).join(", ");
    const { value } = await this.#do({ op: "measure", args: { root, paths }, subject }, walkMs, options);
    return answers.readMeasured(value, paths.length);
  }

  async copyTree(from: Place, to: Place, options: CopyTreeOptions = {}): Promise<CopyResult> {
    const { exclude = [], sync = true, onProgress } = options;
    const runId = randomUUID();
    const work = {
      op: "copyTree" as const,
      args: { from, to, exclude, sync, runId },
      subject: shown(from.root, from.path),
      runId,
      onEvent: onProgress && ((event: unknown) => onProgress(answers.readCopyProgress(event))),
    };
    return answers.readCopyResult((await this.#do(work, longMs, options)).value);
  }

  async extractTar(
    root: string,
    path: string,
    archive: Readable,
    options: ExtractTarOptions = {},
  ): Promise<void> {
    const { maxBytes = maxArchiveBytes, ...limits } = options;
    await this.makeDirs(root, [path], limits);
    // Without -p, tar drops special bits; names that lead out of the directory are its to refuse.
    const argv = ["tar", "--extract", "--no-same-owner", "--no-same-permissions", "--file=-"];
    const subject = `the archive for ${shown(root, path)}`;
    const stdin = limitBytes(archive, maxBytes, () => tooLarge(subject, maxBytes));
    const { exitCode, stderr } = await this.#run(argv, { ...limits, stdin }, { root, path });
    if (exitCode !== 0) {
      throw new SvcError("not_possible", `the archive cannot be unpacked: ${stderr.trim().slice(-1024)}`);
    }
  }

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
      return answers.readArchiveResult((await this.#do(work, archiveMs, options)).value);
    } catch (error) {
      await volumes?.abort(error);
      throw error;
    }
  }

  async browseArchive(
    archive: DescribedArchive,
    tables: Readable,
    { directory, after, limit, ...options }: BrowseArchiveOptions,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    const args = { ...described(archive), directory, after, limit };
    const work = { op: "browseArchive" as const, args, subject: directory || "the archive", input: tables };
    return answers.readArchivedEntries(await this.#do(work, walkMs, options));
  }

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

  async readFileOfArchive(
    archive: DescribedArchive,
    input: Readable,
    { path, frames }: LocatedFile,
    output: Writable,
    options: RequestOptions = {},
  ): Promise<void> {
    const args = { ...described(archive), path, frames: frames.map(({ number }) => number) };
    const work = {
      op: "readFileOfArchive" as const,
      args,
      subject: "the file",
      input,
      output: writeTo(output),
    };
    await this.#do(work, longMs, options);
  }

  async readTail(root: string, files: readonly string[], options: ReadTailOptions): Promise<Tail> {
    const { maxLines } = options;
    const maxBytes = Math.min(options.maxBytes ?? maxFileBytes, maxFileBytes);
    const subject = files.map((path) => shown(root, path)).join(", ");
    const args = { root, files, maxLines, maxBytes };
    const { value, data } = await this.#do({ op: "readTail", args, subject }, quickMs, options);
    return { data, truncated: answers.readTruncated(value) };
  }

  openRead(root: string, path: string, options: RequestOptions & { offset?: number } = {}): Readable {
    const { offset = 0, signal, ...limits } = options;
    const gone = new AbortController();
    const bytes = new PassThrough({
      destroy(error, done) {
        gone.abort();
        done(error);
      },
    });
    const work = {
      op: "openRead" as const,
      args: { root, path, offset },
      subject: shown(root, path),
      output: writeTo(bytes),
    };
    const signals = signal ? AbortSignal.any([gone.signal, signal]) : gone.signal;
    this.#do(work, longMs, { ...limits, signal: signals }).then(
      () => bytes.end(),
      (error: unknown) => bytes.destroy(error instanceof Error ? error : new Error(String(error))),
    );
    return bytes;
  }

  async runCommand(argv: readonly string[], options: RunCommandOptions = {}): Promise<CommandResult> {
    return this.#run(argv, options);
  }

  async spawnDetached(argv: readonly string[], options: SpawnDetachedOptions = {}): Promise<DetachedProcess> {
    const { cwd = "/", env = {}, umask = 0o022, stdin, log } = options;
    const args = { argv, cwd, env, umask, stdin, log };
    const work = { op: "spawnDetached" as const, args, subject: argv[0] ?? "" };
    return answers.readDetached((await this.#do(work, quickMs, options)).value);
  }

  async #run(argv: readonly string[], options: RunCommandOptions, within?: Place): Promise<CommandResult> {
    const { cwd = "/", env = {}, umask = 0o022, stdin, stdout, merged = false, onLine } = options;
    const runId = randomUUID();
    const args = {
      argv,
      cwd,
      within,
      env,
      umask,
      runId,
      input: stdin !== undefined,
      output: stdout !== undefined,
      merged,
      lines: onLine !== undefined,
      maxOutputBytes: Math.min(options.maxOutputBytes ?? 1 << 20, maxOutputBytes),
    };
    const work = {
      op: "runCommand" as const,
      args,
      subject: argv[0] ?? "",
      runId,
      // One element, not its bytes one by one.
      input: stdin instanceof Uint8Array ? Readable.from([stdin]) : stdin,
      output: stdout && writeTo(stdout),
      onEvent: onLine && tellLines(onLine),
    };
    return answers.readCommandResult(await this.#do(work, longMs, options));
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

function tellLines(onLine: NonNullable<RunCommandOptions["onLine"]>): (event: unknown) => void {
  return (event) => {
    const { stream, lines } = answers.readLines(event);
    for (const line of lines) onLine(line, stream);
  };
}

/** How a path appears in sentences: beneath its root, never the daemon's own directories. */
function shown(root: string, path: string): string {
  const below = isAbsolute(path) ? relative(root, path) : path;
  return below.startsWith("../") ? path : below || ".";
}

function tooLarge(subject: string, maxBytes: number): SvcError {
  return new SvcError("too_many", `${subject} is larger than ${maxBytes} bytes`);
}
