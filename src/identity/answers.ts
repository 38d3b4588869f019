/**
 * Answers of a helper, checked: its user can make it say anything, and what it says goes into sums, tables and
 * files of the daemon.
 */
import { SvcError } from "../errors.ts";
import type { CommandResult, CopyProgress, CopyResult, DetachedProcess } from "./identity.ts";
import type { EntryInfo, EntryType, ListedEntry, Measured } from "./identity.ts";
import type { HelperAnswer } from "./pending-request.ts";

const entryTypes: readonly EntryType[] = ["file", "directory", "symlink", "other"];

function malformed(): SvcError {
  return new SvcError("internal", "internal", "a helper process gave an answer that makes no sense");
}

function fieldsOf(value: unknown): Partial<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw malformed();
  return value;
}

function count(value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) throw malformed();
  return value;
}

function entryType(value: unknown): EntryType {
  const type = entryTypes.find((known) => known === value);
  if (type === undefined) throw malformed();
  return type;
}

export function readEntryInfo(value: unknown): EntryInfo | undefined {
  if (value === null) return undefined;
  const { type, sizeBytes, mode, uid, gid, modifiedMs } = fieldsOf(value);
  if (typeof modifiedMs !== "number") throw malformed();
  return {
    type: entryType(type),
    sizeBytes: count(sizeBytes),
    mode: count(mode),
    uid: count(uid),
    gid: count(gid),
    modifiedMs,
  };
}

export function readListing(data: Buffer): ListedEntry[] {
  let listing: unknown;
  try {
    listing = JSON.parse(data.toString());
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (!Array.isArray(listing)) throw malformed();
  return listing.map((entry: unknown) => {
    const { name, type } = fieldsOf(entry);
    if (typeof name !== "string") throw malformed();
    return { name, type: entryType(type) };
  });
}

export function readFreed(value: unknown): { freedBytes: number } {
  return { freedBytes: count(fieldsOf(value)["freedBytes"]) };
}

export function readMeasured(value: unknown, length: number): Measured {
  const { sizes, isWhole } = fieldsOf(value);
  if (!Array.isArray(sizes) || sizes.length !== length) throw malformed();
  return { sizes: sizes.map(count), isWhole: isWhole === true };
}

export function readCopyResult(value: unknown): CopyResult {
  const { copiedBytes, entries } = fieldsOf(value);
  return { copiedBytes: count(copiedBytes), entries: count(entries) };
}

export function readCopyProgress(event: unknown): CopyProgress {
  const { doneBytes, totalBytes } = fieldsOf(fieldsOf(event)["progress"]);
  return {
    doneBytes: count(doneBytes),
    ...(totalBytes !== undefined && { totalBytes: count(totalBytes) }),
  };
}

export function readLines(event: unknown): { stream: "stdout" | "stderr"; lines: string[] } {
  const { stream, lines } = fieldsOf(event);
  if (stream !== "stdout" && stream !== "stderr") throw malformed();
  if (!Array.isArray(lines) || !lines.every((line) => typeof line === "string")) throw malformed();
  return { stream, lines };
}

export function readCommandResult({ value, data }: HelperAnswer): CommandResult {
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

export function readDetached(value: unknown): DetachedProcess {
  const { pid, startTicks } = fieldsOf(value);
  return { pid: count(pid), startTicks: count(startTicks) };
}

export function readTruncated(value: unknown): boolean {
  return fieldsOf(value)["truncated"] === true;
}
