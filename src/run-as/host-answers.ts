/** Checks responses of a helper about files of the host, as `answers.ts` does. */
import { count, fieldsOf, listOf, malformed, parse, text } from "./answers.ts";
import { toSvcError } from "./helper-errors.ts";
import type {
  Deleted,
  HostContent,
  HostEntry,
  HostEntryType,
  HostPage,
  HostProgress,
  SearchRecord,
  Unpacked,
  UsageRecord,
} from "./host-work.ts";
import type { ClaimOf } from "./helper-protocol.ts";
import type { HelperAnswer } from "./pending-request.ts";

const types: readonly HostEntryType[] = [
  "file",
  "directory",
  "symlink",
  "socket",
  "fifo",
  "block_device",
  "char_device",
];
const maxNameChars = 4096;
/** More than a page of 2,000 entries or 1,000 failures needs. Parsed in a few milliseconds. */
const maxStructure = 1 << 16;

export function readHostEntry(value: unknown): HostEntry {
  const [name, type, size, mode, uid, gid, modifiedMs, tag, target] = listOf(value);
  const known = types.find((each) => each === type);
  if (known === undefined || typeof modifiedMs !== "number" || !Number.isSafeInteger(modifiedMs)) {
    throw malformed();
  }
  return {
    name: shortText(name),
    type: known,
    sizeBytes: count(size),
    mode: count(mode),
    uid: count(uid),
    gid: count(gid),
    modifiedMs,
    tag: shortText(tag),
    target: text(target),
  };
}

export function readHostPage({ value, data }: HelperAnswer<"hostList">): HostPage {
  const { directory, more } = fieldsOf(value);
  return {
    directory: readHostEntry(directory),
    entries: listOf(parse(data, maxStructure)).map(readHostEntry),
    more: more === true,
  };
}

export function readContentHead(event: unknown): Omit<HostContent, "bytes"> {
  const { entry, start, length } = fieldsOf(event);
  return {
    entry: readHostEntry(entry),
    start: count(start),
    length: length === -1 ? -1 : count(length),
  };
}

export function readDeleted({ value, data }: HelperAnswer<"hostDelete">): Deleted {
  const { deleted, failures } = fieldsOf(parse(data, maxStructure));
  return {
    deleted: listOf(deleted).map(text),
    failures: listOf(failures).map((failure) => {
      const path = text(fieldsOf(failure)["path"]);
      return { path, error: toSvcError(failure, path) };
    }),
    failureCount: count(fieldsOf(value).failureCount),
  };
}

export function readCopied(value: ClaimOf<"hostCopy">): { entry: HostEntry; copiedBytes: number } {
  const { entry, copiedBytes } = fieldsOf(value);
  return { entry: readHostEntry(entry), copiedBytes: count(copiedBytes) };
}

export function readUnpacked(value: ClaimOf<"hostUnpack">): Unpacked {
  const { entry, entries, bytes } = fieldsOf(value);
  return { entry: readHostEntry(entry), entries: count(entries), bytes: count(bytes) };
}

export function readSearchRecord(record: string): SearchRecord {
  const { entries, end, where, entry, line, text: shown = "" } = fieldsOf(parse(Buffer.from(record)));
  if (end !== undefined) {
    const { matches, failed, truncated, ...rest } = fieldsOf(end);
    const counts = { entries: count(rest["entries"]), matches: count(matches), failed: count(failed) };
    return { kind: "end", ...counts, truncated: truncated === true };
  }
  if (entry === undefined) return { kind: "count", entries: count(entries) };
  return {
    kind: "match",
    where: text(where),
    entry: readHostEntry(entry),
    ...(line !== undefined && { line: count(line) }),
    text: shortText(shown),
  };
}

export function readUsageRecord(record: string): UsageRecord {
  const { entries, sum, path, level } = fieldsOf(parse(Buffer.from(record)));
  if (sum === undefined) return { kind: "count", entries: count(entries) };
  const { diskBytes, sizeBytes, failed, ...rest } = fieldsOf(sum);
  return {
    kind: "sum",
    where: text(path),
    level: count(level),
    diskBytes: count(diskBytes),
    sizeBytes: count(sizeBytes),
    entries: count(rest["entries"]),
    failed: count(failed),
  };
}

export function readHostProgress(event: unknown): HostProgress {
  const { doneBytes, doneEntries } = fieldsOf(fieldsOf(event)["progress"]);
  return {
    ...(doneBytes !== undefined && { doneBytes: count(doneBytes) }),
    ...(doneEntries !== undefined && { doneEntries: count(doneEntries) }),
  };
}

function shortText(value: unknown): string {
  const short = text(value);
  if (short.length > maxNameChars) throw malformed();
  return short;
}
