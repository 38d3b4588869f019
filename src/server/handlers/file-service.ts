/** FileService: one domain call per method. */
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  CopyPathResponseSchema,
  ExtractArchiveResponseSchema,
  FileEntrySchema,
  type CopyPathRequest,
  type CreateArchiveRequest,
  type DeletePathsRequest,
  type ExtractArchiveRequest,
  type FileService,
  type ListDirectoryRequest,
  type MovePathRequest,
} from "../../../gen/svc/v1/file_pb.ts";
import type { OnProgress } from "../../work/progress.ts";
import type { UsageRecord } from "../../run-as/host-work.ts";
import {
  type FileCaller,
  type Files,
  type Found,
  type NamedEntry,
  type Page,
  pathIn,
} from "../../files/files.ts";
import { shareName, userOf, type UserContext } from "../rpc/user-context.ts";
import { contentHeaders, ifMatchOf, isRest, rangeOf } from "./file-headers.ts";
import type { LongMethod, LongMethods, LongRequest } from "./long-method.ts";
import { progressOf, workOf } from "./progress-events.ts";
import { contentsOf, firstOf } from "./uploads.ts";

const contentType = "application/octet-stream";
const defaultLines = 10;
const defaultMatches = 1000;

export function createFileService(files: Files, long: LongMethods): ServiceImpl<typeof FileService> {
  const move = detachable(long, {
    ...{ kind: "move_files", output: FileEntrySchema, step: "move" },
    paths: ({ from, to }: MovePathRequest) => ({ from: [from], to }),
    expected: async ({ from }: MovePathRequest, context) => {
      const { type } = await files.stat(from, callerOf(context), workOf(context));
      return { type };
    },
    work: async (request: MovePathRequest, user, work) =>
      entryMessage(await files.move(request, fileCallerOf(user), work)),
  });
  const copy = detachable(long, {
    ...{ kind: "copy_files", output: CopyPathResponseSchema, step: "copy" },
    paths: ({ from, to }: CopyPathRequest) => ({ from: [from], to }),
    work: async (request: CopyPathRequest, user, work) => {
      const copied = await files.copy(request, fileCallerOf(user), work);
      return { entry: entryMessage(copied.entry), copiedBytes: BigInt(copied.copiedBytes) };
    },
  });
  const pack = detachable(long, {
    ...{ kind: "create_archive", output: FileEntrySchema, step: "pack" },
    paths: ({ paths, target }: CreateArchiveRequest) => ({ from: paths, to: target }),
    expected: () => Promise.resolve({ type: "file" }),
    work: async (request: CreateArchiveRequest, user, work) =>
      entryMessage(await files.pack(request, fileCallerOf(user), work)),
  });
  const unpack = detachable(long, {
    ...{ kind: "extract_archive", output: ExtractArchiveResponseSchema, step: "unpack" },
    paths: ({ path, target }: ExtractArchiveRequest) => ({ from: [path], to: target }),
    work: async (request: ExtractArchiveRequest, user, work) => {
      const options = { ...request, limits: limitsOf(request) };
      const { entry, entries, bytes } = await files.unpack(options, fileCallerOf(user), work);
      return { entry: entryMessage(entry), entries: BigInt(entries), extractedBytes: BigInt(bytes) };
    },
  });
  const remove = async ({ paths }: DeletePathsRequest, context: HandlerContext, onProgress?: OnProgress) => {
    const outcome = await files.delete(paths, callerOf(context), workOf(context, onProgress));
    return { ...outcome, failedCount: BigInt(outcome.failedCount) };
  };

  return {
    listDirectory: async (request, context) =>
      pageMessage(await files.list(pageOf(request), callerOf(context), workOf(context))),

    streamDirectory: async function* (request, context) {
      for await (const page of files.listAll(pageOf(request), callerOf(context), workOf(context))) {
        yield pageMessage(page);
      }
    },

    statPath: async ({ path }, context) =>
      entryMessage(await files.stat(path, callerOf(context), workOf(context))),

    createDirectory: async ({ path, parents, mode }, context) => {
      const options = { parents, mode: modeOf(mode) };
      return entryMessage(await files.makeDirectory(path, options, callerOf(context), workOf(context)));
    },

    movePath: move.call,
    movePathStream: move.stream,

    copyPath: copy.call,
    copyPathStream: copy.stream,

    deletePaths: remove,
    deletePathsStream: progressOf(remove),

    createArchive: pack.call,
    createArchiveStream: pack.stream,

    extractArchive: unpack.call,
    extractArchiveStream: unpack.stream,

    readFile: async function* (request, context) {
      const { path } = request;
      const range = rangeOf(request, context);
      let isFirst = true;
      for await (const { content, bytes } of files.read(path, range, callerOf(context), workOf(context))) {
        const { sizeBytes, tag } = content.entry;
        if (isFirst) contentHeaders(context, content, range);
        const head = { sizeBytes: BigInt(sizeBytes), etag: tag };
        // REST requests the next piece after the kernel has copied this one. Other callers may keep the
        // memory, so they get a copy.
        const data = isRest(context) ? bytes : Buffer.from(bytes);
        yield { content: { contentType: isFirst ? contentType : "", data }, ...(isFirst && head) };
        isFirst = false;
      }
    },

    writeFile: async (messages, context) => {
      const { first, all } = await firstOf(messages);
      const { path, name, overwrite, mode } = first;
      const options = {
        ...{ overwrite, ifMatch: first.ifMatch || ifMatchOf(context), mode: modeOf(mode) },
        // The pieces of a REST body belong to this call. In-process callers keep theirs.
        ownsContent: isRest(context),
      };
      const pieces = contentsOf(all);
      const target = pathIn(path, name);
      return entryMessage(await files.write(target, pieces, options, callerOf(context), workOf(context)));
    },

    tailFile: async function* ({ path, lines = defaultLines, follow }, context) {
      let contentTypeOnce = contentType;
      const options = { lines, follow };
      for await (const data of files.tail(path, options, callerOf(context), workOf(context))) {
        yield { content: { contentType: contentTypeOnce, data } };
        contentTypeOnce = "";
      }
    },

    searchFiles: async function* ({ path, limit = defaultMatches, ...options }, context) {
      const found = files.search(path, { ...options, limit }, callerOf(context), workOf(context));
      for await (const record of found) yield { event: foundEvent(record) };
    },

    getDiskUsage: async function* ({ path, depth = 1 }, context) {
      const records = files.usage(path, depth, callerOf(context), workOf(context));
      for await (const record of records) yield { event: usageEvent(record) };
    },

    setPathAttributes: async ({ path, mode, owner, group, recursive }, context) => {
      const options = { mode: modeOf(mode), owner, group, recursive };
      return entryMessage(await files.setAttributes(path, options, callerOf(context), workOf(context)));
    },

    listSystemIdentities: async () => {
      const { users, groups } = await files.system.names();
      return { users: [...users], groups: [...groups] };
    },
  };
}

function callerOf(context: HandlerContext): FileCaller {
  return fileCallerOf(userOf(context));
}

function fileCallerOf(user: UserContext): FileCaller {
  const isPeer = user.kind === "peer" || user.kind === "local";
  return { uid: user.uid, root: user.root, isPeer, share: shareName(user) };
}

interface FileMethod<Request extends LongRequest, Output extends DescMessage> extends Pick<
  LongMethod<Request, Output, "result">,
  "kind" | "output" | "work"
> {
  /** The step in progress reports. */
  readonly step: string;
  /** The operation's message, as paths. */
  readonly paths: (request: Request) => { readonly from: readonly string[]; readonly to: string };
  /** Fields of the response to `detach`, read before the work starts. Default: none. */
  readonly expected?: (request: Request, context: HandlerContext) => Promise<MessageInitShape<Output>>;
}

/**
 * A long method that is an operation only with `detach`: most calls, such as a rename, take milliseconds, and would displace
 * the user's other stored operations.
 */
function detachable<Request extends LongRequest, Output extends DescMessage>(
  long: LongMethods,
  method: FileMethod<Request, Output>,
) {
  const operation = long.define({
    ...{ ...method, last: "result" },
    work: (request: Request, user, work) => {
      const { from, to } = method.paths(request);
      const message = `${from.map((path) => JSON.stringify(path)).join(", ")} to ${JSON.stringify(to)}`;
      // Counts of entries would fill the log.
      const onProgress: OnProgress = (progress) => work.onProgress?.({ ...progress, message });
      onProgress({ step: method.step });
      return method.work(request, user, { ...work, onProgress });
    },
  });
  const detached = async (request: Request, context: HandlerContext) => {
    const expected = await method.expected?.(request, context);
    return { ...expected, ...(await operation.call(request, context)) };
  };
  const attached = (request: Request, context: HandlerContext, onProgress?: OnProgress) =>
    method.work(request, userOf(context), workOf(context, onProgress));
  const stream = progressOf(attached);
  return {
    call: (request: Request, context: HandlerContext) =>
      request.detach ? detached(request, context) : attached(request, context),
    stream: (request: Request, context: HandlerContext) =>
      request.detach ? operation.stream(request, context) : stream(request, context),
  };
}

function foundEvent(record: Found) {
  if (record.kind === "count") return countEvent("search", record.entries);
  if (record.kind === "match") {
    const { entry, line, text } = record;
    const value = { entry: entryMessage(entry), text, ...(line !== undefined && { line: BigInt(line) }) };
    return { case: "match", value } as const;
  }
  const { entries, matches, failed, truncated } = record;
  const counts = { entries: BigInt(entries), matches: BigInt(matches), failedCount: BigInt(failed) };
  return { case: "result", value: { ...counts, truncated } } as const;
}

function usageEvent(record: UsageRecord) {
  if (record.kind === "count") return countEvent("count", record.entries);
  const { where: path, level: depth, diskBytes, sizeBytes, entries, failed } = record;
  const value = {
    ...{ path, depth, diskBytes: BigInt(diskBytes), sizeBytes: BigInt(sizeBytes) },
    ...{ entries: BigInt(entries), failedCount: BigInt(failed) },
  };
  return { case: depth === 0 ? "result" : "directory", value } as const;
}

function countEvent(step: string, entries: number) {
  return { case: "progress", value: { step, message: `${entries} so far` } } as const;
}

function limitsOf({ maxEntries, maxBytes, maxRatio }: ExtractArchiveRequest) {
  return {
    ...(maxEntries !== undefined && { maxEntries }),
    ...(maxBytes !== undefined && { maxBytes: Number(maxBytes) }),
    ...(maxRatio !== undefined && { maxRatio }),
  };
}

function pageOf({ path, hidden, limit, pageToken }: ListDirectoryRequest) {
  return { path, hidden, limit, pageToken };
}

function pageMessage({ directory, entries, nextPageToken }: Page) {
  return { directory: entryMessage(directory), entries: entries.map(entryMessage), nextPageToken };
}

/** Without object spread, which takes four times as long: a directory may have many entries. */
function entryMessage(entry: NamedEntry) {
  const { name, path, type, sizeBytes, mode, owner, group, uid, gid, modifiedMs, target, tag } = entry;
  const message: MessageInitShape<typeof FileEntrySchema> = {
    name: name === "." ? "/" : name,
    path,
    type,
    owner,
    group,
    uid,
    gid,
    sizeBytes: BigInt(sizeBytes),
    mode: mode.toString(8).padStart(4, "0"),
    modifiedAt: timeOf(modifiedMs),
  };
  if (type === "symlink") message.linkTarget = target;
  if (tag !== "") message.etag = tag;
  return message;
}

/** The fields of a timestamp. Creating a message here would double the time per entry. */
function timeOf(ms: number) {
  const seconds = Math.floor(ms / 1_000);
  return { seconds: BigInt(seconds), nanos: (ms - seconds * 1_000) * 1_000_000 };
}

/** Permission bits from octal digits; undefined for an empty text. */
function modeOf(octal: string): number | undefined {
  return octal === "" ? undefined : Number.parseInt(octal, 8);
}
