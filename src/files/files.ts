/**
 * Files of the host. Each call runs in a helper process as its caller, so that the kernel checks access. Root and
 * tokens work as the daemon's user; the daemon's own files are protected from tokens.
 */
import { posix } from "node:path";
import { Readable } from "node:stream";
import { decodePageToken, encodePageToken } from "../apps/records/page-token.ts";
import type { OnProgress } from "../work/progress.ts";
import { invalidField, SvcError } from "../errors.ts";
import type { HostFiles } from "../run-as/host-files.ts";
import type {
  HostContent,
  HostEntry,
  HostProgress,
  HostWork,
  ReadRange,
  SearchOptions,
  SearchRecord,
  StageRecord,
  UnpackLimits,
  UploadOptions,
  UsageRecord,
} from "../run-as/host-work.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { Tally } from "../lib/tally.ts";
import { archiveFormat } from "./archive-format.ts";
import type { Names, SystemIdentities } from "./system-identities.ts";

const defaultPageSize = 1000;
const nothing = Buffer.alloc(0);
/** Limits the concurrent calls of a caller, because each occupies a helper. */
const maxCallsPerCaller = 16;
const defaultLimits: UnpackLimits = { maxEntries: 1_000_000, maxBytes: 64 * 2 ** 30, maxRatio: 200 };

export interface FileCaller {
  uid: number;
  /** Works as the daemon's user. */
  root: boolean;
  /** Whether the kernel identified the caller, rather than a token. */
  isPeer: boolean;
  /** Key of the caller's share. */
  share: string;
}

export interface FileWork {
  signal: AbortSignal;
  onProgress?: OnProgress | undefined;
}

/** An entry with its path and the names of its owner and group. */
export interface NamedEntry extends HostEntry {
  path: string;
  owner: string;
  group: string;
}

export interface Page {
  directory: NamedEntry;
  entries: NamedEntry[];
  nextPageToken: string;
}

export interface PageRequest {
  path: string;
  hidden: boolean;
  limit?: number | undefined;
  pageToken: string;
}

export type Found =
  | Exclude<SearchRecord, { kind: "match" }>
  | (Omit<Extract<SearchRecord, { kind: "match" }>, "entry"> & { entry: NamedEntry });

export interface PackRequest {
  paths: readonly string[];
  target: string;
  /** Empty: determined by the target's name. */
  format: string;
  overwrite: boolean;
}

export interface UnpackRequest {
  path: string;
  target: string;
  /** Empty: determined by the archive's name. */
  format: string;
  /** Encoding of names that are not UTF-8; empty: CP437 in a zip, and unchanged bytes in a tar. */
  nameEncoding: string;
  overwrite: boolean;
  limits: Partial<UnpackLimits>;
}

export interface FilesOptions {
  userHelpers: UserHelpers;
  systemIdentities: SystemIdentities;
  /** Files of the daemon itself. */
  ownFiles: readonly string[];
  storeDir: string;
  stages: StageRecord;
}

export class Files {
  readonly system: SystemIdentities;
  readonly #options: FilesOptions;
  /** Active calls by the caller's share. */
  readonly #calls = new Tally<string>();

  constructor(options: FilesOptions) {
    this.#options = options;
    this.system = options.systemIdentities;
  }

  async stat(path: string, caller: FileCaller, { signal }: FileWork): Promise<NamedEntry> {
    return this.#entry(path, caller, (hostFiles) => hostFiles.stat(path, { signal }));
  }

  async list(request: PageRequest, caller: FileCaller, { signal }: FileWork): Promise<Page> {
    using _slot = this.#acquireSlot(caller);
    return await this.#page(await this.#filesAs(caller), request, signal);
  }

  /** Yields page after page. */
  async *listAll(request: PageRequest, caller: FileCaller, { signal }: FileWork): AsyncGenerator<Page> {
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    let next: Promise<Page> | undefined = this.#page(hostFiles, request, signal);
    while (next !== undefined) {
      const page: Page = await next;
      const { nextPageToken: pageToken } = page;
      // Read the next page while this one is sent.
      next = pageToken === "" ? undefined : this.#page(hostFiles, { ...request, pageToken }, signal);
      // The caller may never await it.
      next?.catch(() => undefined);
      yield page;
    }
  }

  /**
   * Yields first an item without bytes, which describes the content. The bytes are valid only until the next item.
   * @throws SvcError `range_not_satisfiable`
   */
  async *read(
    path: string,
    range: ReadRange,
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<{ content: HostContent; bytes: Buffer }> {
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    const content = await hostFiles.read(path, range, { signal });
    if (content.length < 0) throw beyondEnd(path, content.entry.sizeBytes);
    yield { content, bytes: nothing };
    for await (const bytes of content.bytes) yield { content, bytes };
  }

  async write(
    path: string,
    content: AsyncIterable<Uint8Array>,
    options: UploadOptions,
    caller: FileCaller,
    { signal }: FileWork,
  ): Promise<NamedEntry> {
    const input = Readable.from(content, { objectMode: true, highWaterMark: 1 });
    return this.#entry(path, caller, (hostFiles) => hostFiles.upload(path, input, options, { signal }));
  }

  async makeDirectory(
    path: string,
    { parents, mode = 0o755 }: { parents: boolean; mode?: number | undefined },
    caller: FileCaller,
    { signal }: FileWork,
  ): Promise<NamedEntry> {
    return this.#entry(path, caller, (hostFiles) => hostFiles.makeDirectory(path, parents, mode, { signal }));
  }

  async setAttributes(
    path: string,
    requested: { mode?: number | undefined; owner: string; group: string; recursive: boolean },
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    const { mode, owner, group, recursive } = requested;
    const uid = owner === "" ? undefined : await this.system.uidOf(owner);
    const gid = group === "" ? undefined : await this.system.gidOf(group);
    if (mode === undefined && uid === undefined && gid === undefined) {
      throw invalidField("mode", "is required unless an owner or a group is set");
    }
    const attributes = { mode, uid, gid, recursive };
    return this.#entry(path, caller, (hostFiles) =>
      hostFiles.setAttributes(path, attributes, hostWork(work)),
    );
  }

  async delete(paths: readonly string[], caller: FileCaller, work: FileWork) {
    using _slot = this.#acquireSlot(caller);
    const { deleted, failures, failureCount } = await (
      await this.#filesAs(caller)
    ).delete(paths, hostWork(work, "delete"));
    return {
      deleted,
      failed: failures.map(({ path, error }) => ({ path, error: error.message })),
      failedCount: failureCount,
    };
  }

  async copy(
    { from, to, overwrite }: { from: string; to: string; overwrite: boolean },
    caller: FileCaller,
    work: FileWork,
  ): Promise<{ entry: NamedEntry; copiedBytes: number }> {
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    const { entry, copiedBytes } = await hostFiles.copy(from, to, overwrite, hostWork(work, "copy"));
    return { entry: named(entry, to, await this.system.names()), copiedBytes };
  }

  async move(
    { from, to, overwrite }: { from: string; to: string; overwrite: boolean },
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    return this.#entry(to, caller, (hostFiles) =>
      hostFiles.move(from, to, overwrite, hostWork(work, "move")),
    );
  }

  async *tail(
    path: string,
    options: { lines: number; follow: boolean },
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<Buffer> {
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    for await (const bytes of hostFiles.tail(path, options, { signal }) as AsyncIterable<Buffer>) yield bytes;
  }

  /** @throws SvcError `invalid_request` without a name and content to search for */
  async *search(
    path: string,
    options: SearchOptions,
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<Found> {
    if (options.name === "" && options.content === "") {
      throw invalidField("name", "is required unless content is set");
    }
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    const names = await this.system.names();
    for await (const record of hostFiles.search(path, options, { signal })) {
      if (record.kind !== "match") yield record;
      else yield { ...record, entry: named(record.entry, below(path, record.where), names) };
    }
  }

  async *usage(
    path: string,
    depth: number,
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<UsageRecord> {
    using _slot = this.#acquireSlot(caller);
    const hostFiles = await this.#filesAs(caller);
    for await (const record of hostFiles.usage(path, depth, { signal })) {
      yield record.kind === "sum" ? { ...record, where: below(path, record.where) } : record;
    }
  }

  async pack(
    { paths, target, format, overwrite }: PackRequest,
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    const archiveType = archiveFormat(format, target);
    if (archiveType !== "tar.gz" && archiveType !== "tar.zst" && archiveType !== "zip")
      throw invalidField("format", "must be tar.gz, tar.zst or zip");
    const options = { format: archiveType, overwrite };
    return this.#entry(target, caller, (hostFiles) =>
      hostFiles.pack(target, paths, options, hostWork(work, "pack")),
    );
  }

  async unpack(
    { path, target, format, nameEncoding, overwrite, limits }: UnpackRequest,
    caller: FileCaller,
    work: FileWork,
  ): Promise<{ entry: NamedEntry; entries: number; bytes: number }> {
    using _slot = this.#acquireSlot(caller);
    const options = {
      format: archiveFormat(format, path),
      nameEncoding,
      overwrite,
      limits: { ...defaultLimits, ...limits },
    };
    const hostFiles = await this.#filesAs(caller);
    const unpacked = await hostFiles.unpack(path, target, options, hostWork(work, "unpack"));
    return { ...unpacked, entry: named(unpacked.entry, target, await this.system.names()) };
  }

  /** @throws SvcError `too_many` */
  #acquireSlot({ share }: FileCaller): Disposable {
    if (this.#calls.of(share) >= maxCallsPerCaller) {
      throw new SvcError(
        "too_many",
        `${maxCallsPerCaller} of your file operations are running, which is the limit; wait for one to finish`,
      );
    }
    this.#calls.change(share, 1);
    return { [Symbol.dispose]: () => void this.#calls.change(share, -1) };
  }

  async #entry(
    path: string,
    caller: FileCaller,
    work: (hostFiles: HostFiles) => Promise<HostEntry>,
  ): Promise<NamedEntry> {
    using _slot = this.#acquireSlot(caller);
    const entry = await work(await this.#filesAs(caller));
    return named(entry, path, await this.system.names());
  }

  async #page(
    hostFiles: HostFiles,
    { path, hidden, limit = defaultPageSize, pageToken }: PageRequest,
    signal: AbortSignal,
  ): Promise<Page> {
    const after = decodePageToken(pageToken);
    const { directory, entries, more } = await hostFiles.list(path, { hidden, after, limit }, { signal });
    const names = await this.system.names();
    const last = entries.at(-1);
    const above = posix.join(path, "/");
    return {
      directory: named(directory, path, names),
      entries: entries.map((entry) => named(entry, above + entry.name, names)),
      nextPageToken: more && last !== undefined ? encodePageToken(last.name) : "",
    };
  }

  #filesAs({ uid, root, isPeer }: FileCaller): Promise<HostFiles> {
    const { userHelpers, ownFiles, storeDir, stages } = this.#options;
    if (!root) return userHelpers.hostFiles(uid, { stages });
    // Everything in the store belongs to the daemon, except the apps' directories.
    const guard = { files: [...ownFiles], directories: [{ path: storeDir, except: ["apps"] }] };
    return userHelpers.hostFiles(userHelpers.selfUid, { stages, ...(!isPeer && { guard }) });
  }
}

/** @param where a path below `path`, or empty for `path` itself */
function below(path: string, where: string): string {
  return where === "" ? path : posix.join(path, where);
}

function named(entry: HostEntry, path: string, names: Names): NamedEntry {
  return { ...entry, path, owner: names.userName(entry.uid), group: names.groupName(entry.gid) };
}

function hostWork({ signal, onProgress }: FileWork, step = "change"): HostWork {
  return {
    signal,
    onProgress:
      onProgress &&
      (({ doneBytes, doneEntries }: HostProgress) =>
        onProgress({
          step,
          ...(doneBytes !== undefined && { doneBytes: BigInt(doneBytes) }),
          ...(doneEntries !== undefined && { message: `${doneEntries} so far` }),
        })),
  };
}

/** Path of a name in a directory. @throws SvcError `invalid_request` unless the name is a single path segment */
export function pathIn(directory: string, name: string): string {
  if (name === "") return directory;
  if (name.includes("/") || name === "." || name === "..")
    throw invalidField("name", "must be a single name");
  return posix.join(directory, name);
}

function beyondEnd(path: string, sizeBytes: number): SvcError {
  return new SvcError(
    "range_not_satisfiable",
    `${JSON.stringify(path)} has ${sizeBytes} bytes; the range must start before its end`,
  );
}
