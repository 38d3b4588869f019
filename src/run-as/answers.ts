/** Checks responses of a helper. Its user controls the helper, and the daemon uses the values in sums, tables and files. */
import { SvcError } from "../errors.ts";
import type {
  ArchivedEntry,
  ArchivePart,
  CommandResult,
  CopyProgress,
  EntryInfo,
  EntryType,
  FramePlace,
  ListedEntry,
  LocatedFile,
  LocatedPaths,
  MeasuredSizes,
  WrittenArchive,
} from "./user-helper-types.ts";
import { hasMoreStructure } from "../lib/json.ts";
import type { ClaimOf } from "./helper-protocol.ts";
import type { HelperAnswer } from "./pending-request.ts";

/** A listing of 18,000 entries has this many. */
const maxStructure = 1 << 18;
/** Frames in one response: with 4 MiB each, the archive has 400 GB. */
const maxFrames = 100_000;
/** Three doubles. */
const placeBytes = 24;

const entryTypes: readonly EntryType[] = ["file", "directory", "symlink", "other"];

export function malformed(): SvcError {
  return new SvcError("internal", "a helper process sent an invalid response");
}

/** The fields that the type of a claim names; any field if the type is unknown. */
type Fields<Value> = [keyof NonNullable<Value>] extends [never]
  ? Partial<Record<string, unknown>>
  : Partial<Record<keyof NonNullable<Value>, unknown>>;

export function fieldsOf<Value>(value: Value): Fields<Value> {
  if (typeof value !== "object" || value === null) throw malformed();
  return value;
}

export function count(value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) throw malformed();
  return value;
}

/** Reads the named fields of a claim as counts. */
export function counts<Value, Name extends keyof NonNullable<Value> & string>(
  value: Value,
  ...names: readonly Name[]
): Record<Name, number> {
  const fields: Partial<Record<string, unknown>> = fieldsOf(value);
  return Object.fromEntries(names.map((name) => [name, count(fields[name])])) as Record<Name, number>;
}

function entryType(value: unknown): EntryType {
  const type = entryTypes.find((known) => known === value);
  if (type === undefined) throw malformed();
  return type;
}

export function readEntryInfo(value: ClaimOf<"stat">): EntryInfo | undefined {
  if (value === null) return undefined;
  const { type, modifiedMs } = fieldsOf(value);
  if (typeof modifiedMs !== "number") throw malformed();
  return {
    type: entryType(type),
    ...counts(value, "sizeBytes", "mode", "uid", "gid"),
    modifiedMs,
  };
}

export function readListing(data: Buffer): ListedEntry[] {
  return listOf(parse(data)).map((entry) => {
    const { name, type } = fieldsOf(entry);
    return { name: text(name), type: entryType(type) };
  });
}

const archivedTypes = ["file", "directory", "symlink", "hardlink", "other"] as const;

export function readArchivedEntries({ value, data }: HelperAnswer<"browseArchive">): {
  entries: ArchivedEntry[];
  more: boolean;
} {
  const entries = listOf(parse(data)).map((entry) => {
    const { path, type, size, mode, mtime, target, sha256 } = fieldsOf(entry);
    const known = archivedTypes.find((each) => each === type);
    if (known === undefined) throw malformed();
    return {
      path: text(path),
      type: known,
      sizeBytes: count(size),
      mode: count(mode),
      modifiedMs: Math.round(Number(mtime) * 1000) || 0,
      target: text(target),
      sha256: text(sha256),
    };
  });
  return { entries, more: fieldsOf(value).more === true };
}

export function readLocatedPaths({ value, data }: HelperAnswer<"locateInArchive">): LocatedPaths {
  return { frames: framePlaces(data), ...counts(value, "entries", "contentBytes") };
}

export function readLocatedFile({ value, data }: HelperAnswer<"locateFileInArchive">): LocatedFile {
  const { path, size } = fieldsOf(value);
  return { path: text(path), sizeBytes: count(size), frames: framePlaces(data) };
}

function framePlaces(data: Buffer): FramePlace[] {
  const length = data.length / placeBytes;
  if (!Number.isInteger(length) || length > maxFrames) throw malformed();
  return Array.from({ length }, (_, index) => {
    const start = index * placeBytes;
    return {
      number: count(data.readDoubleLE(start)),
      at: count(data.readDoubleLE(start + 8)),
      bytes: count(data.readDoubleLE(start + 16)),
    };
  });
}

/** @param most maximum number of brackets, commas, colons and quotes, which determine the cost of parsing */
export function parse(data: Buffer, most = maxStructure): unknown {
  const json = data.toString();
  if (hasMoreStructure(json, most)) throw malformed();
  try {
    return JSON.parse(json);
  } catch {
    throw malformed();
  }
}

export function listOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw malformed();
  return value;
}

export function text(value: unknown): string {
  if (typeof value !== "string") throw malformed();
  return value;
}

/** Far more than helpers send, which shorten paths. */
const maxPathLength = 65_536;

/** A path that leads only down. The user controls the response, and root may be advised to give this path to the user. */
function pathBelow(path: string): string {
  const leavesRoot = path.startsWith("/") || path.split("/").includes("..");
  if (leavesRoot || path.length > maxPathLength) throw malformed();
  return path;
}

export function readMeasured(value: ClaimOf<"measure">, length: number): MeasuredSizes {
  const { sizes, isComplete, barrier } = fieldsOf(value);
  if (!Array.isArray(sizes) || sizes.length !== length) throw malformed();
  return {
    ...{ sizes: sizes.map(count), isComplete: isComplete === true },
    ...(barrier !== undefined && { barrier: pathBelow(Buffer.from(text(barrier), "latin1").toString()) }),
  };
}

export function readCopyProgress(event: unknown): CopyProgress {
  const { doneBytes, totalBytes } = fieldsOf(fieldsOf(event)["progress"]);
  return {
    doneBytes: count(doneBytes),
    ...(totalBytes !== undefined && { totalBytes: count(totalBytes) }),
  };
}

export function readWrittenArchive(value: ClaimOf<"writeArchive">): WrittenArchive {
  const { index, table, warnings } = fieldsOf(value);
  if (!Array.isArray(warnings)) throw malformed();
  return {
    ...counts(value, "framesBytes", "tarBytes", "contentBytes", "entries"),
    index: archivePart(index),
    table: archivePart(table),
    warnings: warnings.slice(0, 100).map((warning: unknown) => String(warning).slice(0, 1024)),
  };
}

function archivePart(value: unknown): ArchivePart {
  const { bytes, sha256 } = fieldsOf(value);
  if (typeof sha256 !== "string") throw malformed();
  return { bytes: count(bytes), sha256 };
}

export function readLines(event: unknown): { stream: "stdout" | "stderr"; lines: string[] } {
  const { stream, lines } = fieldsOf(event);
  if (stream !== "stdout" && stream !== "stderr") throw malformed();
  if (!Array.isArray(lines) || !lines.every((line) => typeof line === "string")) throw malformed();
  return { stream, lines };
}

export function readCommandResult({ value, data }: HelperAnswer<"runCommand">): CommandResult {
  const { exitCode, signal, stdoutBytes, truncated } = fieldsOf(value);
  const end = count(stdoutBytes);
  return {
    exitCode: exitCode === null ? null : count(exitCode),
    signal: typeof signal === "string" ? signal : null,
    stdout: data.toString("utf8", 0, end),
    stderr: data.toString("utf8", end),
    truncated: truncated === true,
  };
}

export function readTruncated(value: ClaimOf<"readTail">): boolean {
  return fieldsOf(value).truncated === true;
}
