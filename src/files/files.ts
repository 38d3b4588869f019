/**
 * Files of the host, each call in the hands of its caller: a helper process with the user's own identity, so that the kernel
 * decides. Root and tokens work as the daemon's user; what is the daemon's own is guarded from tokens (D26, D32).
 */
import { posix } from "node:path";
import { Readable } from "node:stream";
import { decodePageToken, encodePageToken } from "../apps/page-token.ts";
import type { OnProgress } from "../apps/progress.ts";
import { invalidField, SvcError } from "../errors.ts";
import type { HostFiles } from "../identity/host-files.ts";
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
} from "../identity/host-work.ts";
import type { Identities } from "../identity/identities.ts";
import { Tally } from "../lib/tally.ts";
import { archiveFormat } from "./archive-format.ts";
import type { Names, SystemIdentities } from "./system-identities.ts";

const defaultPageSize = 1000;
const nothing = Buffer.alloc(0);
/** That run at a time, as each occupies a helper. */
const maxCallsPerCaller = 16;
const defaultLimits: UnpackLimits = { maxEntries: 1_000_000, maxBytes: 64 * 2 ** 30, maxRatio: 200 };

export interface FileCaller {
  uid: number;
  /** Works as the daemon's own user. */
  root: boolean;
  /** Whether the kernel says who it is, and not a token. */
  isPeer: boolean;
  /** By what name its share is known. */
  share: string;
}

export interface FileWork {
  signal: AbortSignal;
  onProgress?: OnProgress | undefined;
}

/** An entry with its path and the names of those it belongs to. */
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
  /** Empty: by the target's name. */
  format: string;
  overwrite: boolean;
}

export interface UnpackRequest {
  path: string;
  target: string;
  /** Empty: by the archive's name. */
  format: string;
  overwrite: boolean;
  limits: Partial<UnpackLimits>;
}

export interface FilesOptions {
  identities: Identities;
  systemIdentities: SystemIdentities;
  /** Files of the daemon's own. */
  ownFiles: readonly string[];
  storeDir: string;
  stages: StageRecord;
}

export class Files {
  readonly system: SystemIdentities;
  readonly #options: FilesOptions;
  /** Calls under way, by what name their caller's share is known. */
  readonly #calls = new Tally<string>();

  constructor(options: FilesOptions) {
    this.#options = options;
    this.system = options.systemIdentities;
  }

  async stat(path: string, caller: FileCaller, { signal }: FileWork): Promise<NamedEntry> {
    return this.#entry(path, caller, (hands) => hands.stat(path, { signal }));
  }

  async list(request: PageRequest, caller: FileCaller, { signal }: FileWork): Promise<Page> {
    using _place = this.#place(caller);
    return await this.#page(await this.#hands(caller), request, signal);
  }

  /** Page after page. */
  async *listAll(request: PageRequest, caller: FileCaller, { signal }: FileWork): AsyncGenerator<Page> {
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    let next: Promise<Page> | undefined = this.#page(hands, request, signal);
    while (next !== undefined) {
      const page: Page = await next;
      const { nextPageToken: pageToken } = page;
      // The helper looks at the next ones while these are written.
      next = pageToken === "" ? undefined : this.#page(hands, { ...request, pageToken }, signal);
      // Nobody may ask for it any more.
      next?.catch(() => undefined);
      yield page;
    }
  }

  /**
   * First without bytes, for what is said before them. The bytes are lent until the next are asked for.
   * @throws SvcError `range_not_satisfiable`
   */
  async *read(
    path: string,
    range: ReadRange,
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<{ content: HostContent; bytes: Buffer }> {
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    const content = await hands.read(path, range, { signal });
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
    return this.#entry(path, caller, (hands) => hands.upload(path, input, options, { signal }));
  }

  async makeDirectory(
    path: string,
    { parents, mode = 0o755 }: { parents: boolean; mode?: number | undefined },
    caller: FileCaller,
    { signal }: FileWork,
  ): Promise<NamedEntry> {
    return this.#entry(path, caller, (hands) => hands.makeDirectory(path, parents, mode, { signal }));
  }

  async setAttributes(
    path: string,
    wanted: { mode?: number | undefined; owner: string; group: string; recursive: boolean },
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    const { mode, owner, group, recursive } = wanted;
    const uid = owner === "" ? undefined : await this.system.uidOf(owner);
    const gid = group === "" ? undefined : await this.system.gidOf(group);
    if (mode === undefined && uid === undefined && gid === undefined) {
      throw invalidField("mode", "is needed, or an owner or a group");
    }
    const attributes = { mode, uid, gid, recursive };
    return this.#entry(path, caller, (hands) => hands.setAttributes(path, attributes, hostWork(work)));
  }

  async delete(paths: readonly string[], caller: FileCaller, work: FileWork) {
    using _place = this.#place(caller);
    const { deleted, failures, failureCount } = await (
      await this.#hands(caller)
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
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    const { entry, copiedBytes } = await hands.copy(from, to, overwrite, hostWork(work, "copy"));
    return { entry: named(entry, to, await this.system.names()), copiedBytes };
  }

  async move(
    { from, to, overwrite }: { from: string; to: string; overwrite: boolean },
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    return this.#entry(to, caller, (hands) => hands.move(from, to, overwrite, hostWork(work, "move")));
  }

  async *tail(
    path: string,
    options: { lines: number; follow: boolean },
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<Buffer> {
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    for await (const bytes of hands.tail(path, options, { signal }) as AsyncIterable<Buffer>) yield bytes;
  }

  /** @throws SvcError `invalid_request` for what looks for nothing */
  async *search(
    path: string,
    wanted: SearchOptions,
    caller: FileCaller,
    { signal }: FileWork,
  ): AsyncGenerator<Found> {
    if (wanted.name === "" && wanted.content === "") {
      throw invalidField("name", "is needed, or content to look for");
    }
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    const names = await this.system.names();
    for await (const record of hands.search(path, wanted, { signal })) {
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
    using _place = this.#place(caller);
    const hands = await this.#hands(caller);
    for await (const record of hands.usage(path, depth, { signal })) {
      yield record.kind === "sum" ? { ...record, where: below(path, record.where) } : record;
    }
  }

  async pack(
    { paths, target, format, overwrite }: PackRequest,
    caller: FileCaller,
    work: FileWork,
  ): Promise<NamedEntry> {
    const wanted = archiveFormat(format, target);
    if (wanted === "tar") throw invalidField("format", "must be tar.gz, tar.zst or zip");
    const options = { format: wanted, overwrite };
    return this.#entry(target, caller, (hands) => hands.pack(target, paths, options, hostWork(work, "pack")));
  }

  async unpack(
    { path, target, format, overwrite, limits }: UnpackRequest,
    caller: FileCaller,
    work: FileWork,
  ): Promise<{ entry: NamedEntry; entries: number; bytes: number }> {
    using _place = this.#place(caller);
    const options = {
      format: archiveFormat(format, path),
      overwrite,
      limits: { ...defaultLimits, ...limits },
    };
    const hands = await this.#hands(caller);
    const unpacked = await hands.unpack(path, target, options, hostWork(work, "unpack"));
    return { ...unpacked, entry: named(unpacked.entry, target, await this.system.names()) };
  }

  /** @throws SvcError `too_many` */
  #place({ share }: FileCaller): Disposable {
    if (this.#calls.of(share) >= maxCallsPerCaller) {
      throw new SvcError(
        "too_many",
        `${maxCallsPerCaller} calls of yours work on files already: wait for one of them to end`,
      );
    }
    this.#calls.change(share, 1);
    return { [Symbol.dispose]: () => void this.#calls.change(share, -1) };
  }

  async #entry(
    path: string,
    caller: FileCaller,
    work: (hands: HostFiles) => Promise<HostEntry>,
  ): Promise<NamedEntry> {
    using _place = this.#place(caller);
    const entry = await work(await this.#hands(caller));
    return named(entry, path, await this.system.names());
  }

  async #page(
    hands: HostFiles,
    { path, hidden, limit = defaultPageSize, pageToken }: PageRequest,
    signal: AbortSignal,
  ): Promise<Page> {
    const after = decodePageToken(pageToken);
    const { directory, entries, more } = await hands.list(path, { hidden, after, limit }, { signal });
    const names = await this.system.names();
    const last = entries.at(-1);
    const above = posix.join(path, "/");
    return {
      directory: named(directory, path, names),
      entries: entries.map((entry) => named(entry, above + entry.name, names)),
      nextPageToken: more && last !== undefined ? encodePageToken(last.name) : "",
    };
  }

  #hands({ uid, root, isPeer }: FileCaller): Promise<HostFiles> {
    const { identities, ownFiles, storeDir, stages } = this.#options;
    if (!root) return identities.hostFiles(uid, { stages });
    // Everything there is the daemon's own but the directories of the apps.
    const guard = { files: [...ownFiles], directories: [{ path: storeDir, except: ["apps"] }] };
    return identities.hostFiles(identities.selfUid, { stages, ...(!isPeer && { guard }) });
  }
}

/** @param where a path below another one, or empty for that one itself */
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

/** The path of a name in a directory. @throws SvcError `invalid_request` for what is no single name */
export function pathIn(directory: string, name: string): string {
  if (name === "") return directory;
  if (name.includes("/") || name === "." || name === "..")
    throw invalidField("name", "must be a single name");
  return posix.join(directory, name);
}

function beyondEnd(path: string, sizeBytes: number): SvcError {
  return new SvcError(
    "range_not_satisfiable",
    `${JSON.stringify(path)} has ${sizeBytes} bytes, and the range begins behind them`,
  );
}
