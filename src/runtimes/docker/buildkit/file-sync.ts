/** Sends the directories of a build to the engine, which requests them by name and with patterns of `.dockerignore`. */
import type { SessionMethod } from "../../../engine/buildkit/session.ts";
import { SvcError } from "../../../errors.ts";
import type { UserHelper } from "../../../run-as/user-helper.ts";
import { chosenEntries, listEntries, tooLarge, type ChooseEntries } from "../context-entries.ts";
import { readRequested } from "./requested-files.ts";
import {
  dataPacket,
  endPacket,
  entryPacket,
  lastEntryPacket,
  readRequest,
  type SyncEntry,
} from "./sync-packets.ts";

export const fileSyncMethod = "/moby.filesync.v1.FileSync/DiffCopy";

/** Absolute path of a directory of the app, or files in memory by name. */
export type SyncSource = { readonly directory: string } | { readonly files: ReadonlyMap<string, Buffer> };

export interface FileSyncOptions {
  readonly userHelper: Pick<UserHelper, "runCommand">;
  /** By the name by which the engine requests them. */
  readonly sources: ReadonlyMap<string, SyncSource>;
  readonly chooseEntries: ChooseEntries;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

export function fileSync(options: FileSyncOptions): SessionMethod {
  return async function* (requests, metadata) {
    const name = metadata.values("dir-name")[0] ?? "";
    const source = options.sources.get(name);
    if (source === undefined) throw new SvcError("not_found", `the build has no directory "${name}"`);
    if ("files" in source) yield* sendFiles(source.files, requests);
    else yield* sendDirectory(source.directory, requests, options, metadata.values);
  };
}

async function* sendFiles(
  files: ReadonlyMap<string, Buffer>,
  requests: AsyncIterable<Buffer>,
): AsyncGenerator<Uint8Array, void> {
  const names = [...files.keys()].toSorted();
  for (const path of names) {
    const sizeBytes = files.get(path)?.length ?? 0;
    yield entryPacket({ path, type: "file", mode: 0o644, sizeBytes, modifiedNs: 0n, target: "" });
  }
  yield lastEntryPacket();
  for await (const packet of requests) {
    const request = readRequest(packet);
    if (request.type === "end") break;
    yield dataPacket(request.id, files.get(names[request.id] ?? "") ?? Buffer.alloc(0));
    yield dataPacket(request.id, Buffer.alloc(0));
  }
  yield endPacket();
}

async function* sendDirectory(
  directory: string,
  requests: AsyncIterable<Buffer>,
  { userHelper, chooseEntries, timeoutMs, maxBytes, signal }: FileSyncOptions,
  valuesOf: (name: string) => readonly string[],
): AsyncGenerator<Uint8Array, void> {
  const limits = { timeoutMs, signal };
  const all = await listEntries(userHelper, directory, limits);
  const followed = valuesOf("followpaths");
  // Paths that the build uses are only a hint, but the engine also requests ignore files in this way.
  const isForIgnoreFiles = followed.length > 0 && followed.every((path) => path.endsWith(".dockerignore"));
  const ignoreText = Buffer.from(valuesOf("exclude-patterns").join("\n")).toString("latin1");
  const entries = isForIgnoreFiles
    ? all.filter(({ path }) => followed.includes(path))
    : await chosenEntries(all, chooseEntries, { ignoreText, withDirectories: true });
  for (const entry of entries) yield entryPacket(entry);
  yield lastEntryPacket();
  const waiting: number[] = [];
  const names = requestedNames(requests, entries, waiting);
  let sentBytes = 0;
  for await (const { name, content } of readRequested(userHelper, directory, names, limits)) {
    const id = waiting.shift() ?? -1;
    if (entries[id]?.path !== name) throw new Error(`"${name}" was read instead of the requested file`);
    for await (const piece of content) {
      sentBytes += piece.length;
      if (sentBytes > maxBytes) throw tooLarge(`${maxBytes} bytes`);
      yield dataPacket(id, piece);
    }
    yield dataPacket(id, Buffer.alloc(0));
  }
  yield endPacket();
}

/** Yields the names of the requested files until the receiver has everything, and adds their numbers to `waiting`. */
async function* requestedNames(
  requests: AsyncIterable<Buffer>,
  entries: readonly SyncEntry[],
  waiting: number[],
): AsyncGenerator<string, void> {
  for await (const packet of requests) {
    const request = readRequest(packet);
    if (request.type === "end") return;
    const entry = entries[request.id];
    if (entry?.type !== "file") throw new Error(`entry ${request.id} is not a file`);
    waiting.push(request.id);
    yield entry.path;
  }
}
