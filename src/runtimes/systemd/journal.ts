/** Reads a unit's lines from the journal, by cursor (journalctl(1)). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { SvcError } from "../../errors.ts";
import { systemDirs } from "../../run-as/launch.ts";
import { boundedLines } from "../../lib/lines.ts";
import type { LogRecord } from "../../logs/log-chunk.ts";

export interface JournalQuestion {
  readonly unit: string;
  /** Uid whose lines belong to the app; undefined: any process in the unit. */
  readonly uid: number | undefined;
  /** Excludes lines of an earlier app with the same name. Unix milliseconds. */
  readonly sinceMs: number;
  /** The newest lines, newest first; or all lines after a line or from an instant, oldest first. */
  readonly from: { readonly newest: number } | { readonly afterCursor: string } | { readonly fromMs: number };
  /** Whether to wait for new lines; not with the newest. */
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
}

export interface JournalLine extends LogRecord {
  readonly cursor: string;
}

/** How a main process ended. */
export interface MainExit {
  /** The entry's cursor, which identifies the exit. */
  readonly cursor?: string;
  /** False if a signal ended it. */
  readonly hasExited: boolean;
  /** Exit code, or number of the signal. */
  readonly status: number;
}

/** ID of systemd's message "Main process exited". */
const mainExited = "98e322203f7a4ed290d09fe03c09fe15";
const exitMs = 10_000;
/** Longer lines are cut: the journal stores 48 KiB of a line. */
const maxTextLength = 64 * 1024;
/**
 * Maximum length of a message in journalctl's output, where a byte may be printed as a number. A program that writes to the journal
 * directly may send megabytes in one message, which would delay all other lines, so longer messages are skipped.
 */
const maxPrintedLength = 512 * 1024;
const fields = "MESSAGE,_PID";
const asJson = ["--no-pager", "--quiet", "--output=json"];

const since = (ms: number): string => `--since=@${(ms / 1000).toFixed(3)}`;
/** With a time, older versions of journalctl count lines from there, unless the newest come first. */
const newestFirst = (lines: number): string[] => ["--reverse", `--lines=${lines}`];

/**
 * Reads at the caller's speed; unread lines stay in the journal.
 * @throws SvcError `unavailable` when the journal cannot be read completely
 */
export async function* readJournal(question: JournalQuestion): AsyncGenerator<JournalLine, void> {
  const { unit, uid, sinceMs, from, follow, signal } = question;
  if (signal?.aborted === true) return;
  const start =
    "newest" in from
      ? [since(sinceMs), ...newestFirst(from.newest)]
      : "fromMs" in from
        ? [since(Math.max(from.fromMs, sinceMs)), "--lines=all"]
        : // A cursor implies a time; journalctl rejects both together.
          [`--after-cursor=${from.afterCursor}`, "--lines=all"];
  const args = [
    ...[...asJson, `--output-fields=${fields}`, "--all"],
    ...[...start, ...(follow ? ["--follow"] : [])],
    ...[`_SYSTEMD_UNIT=${unit}`, ...(uid === undefined ? [] : [`_UID=${uid}`])],
    // systemd's own messages about the unit.
    ...["+", `UNIT=${unit}`, "_PID=1"],
  ];
  for await (const text of printed(args, signal)) {
    const line = parseLine(text);
    if (line !== undefined) yield line;
  }
}

/**
 * How the unit's main process ended last: systemd itself only knows the process that it started since.
 * @returns `undefined` when the journal has no record
 */
export async function readLastExit(unit: string, sinceMs: number): Promise<MainExit | undefined> {
  const args = [
    ...[...asJson, "--output-fields=EXIT_CODE,EXIT_STATUS"],
    ...newestFirst(1),
    ...[since(sinceMs), `UNIT=${unit}`, "_PID=1", `MESSAGE_ID=${mainExited}`],
  ];
  for await (const text of printed(args, AbortSignal.timeout(exitMs))) return parseExit(text);
  return undefined;
}

/**
 * Yields lines of journalctl's output until it exits or the signal aborts. @throws SvcError `unavailable` when it
 * failed
 */
async function* printed(
  args: readonly string[],
  signal: AbortSignal | undefined,
): AsyncGenerator<string, void> {
  const child = spawn("journalctl", args, {
    cwd: "/",
    env: { PATH: systemDirs.join(":") },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(child, "close").then(
    ([code, name]: unknown[]) => String(code ?? name),
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
  const end = (): void => void child.kill("SIGKILL");
  signal?.addEventListener("abort", end, { once: true });
  try {
    yield* journalLines(child.stdout.setEncoding("utf8") as AsyncIterable<string>);
    const ending = await exited;
    if (ending !== "0" && signal?.aborted !== true)
      throw new SvcError("unavailable", `the journal cannot be read: journalctl failed (${ending})`);
  } finally {
    signal?.removeEventListener("abort", end);
    end();
    await exited;
  }
}

/** Splits journalctl's output into lines, without overlong ones. */
export function journalLines(pieces: AsyncIterable<string>): AsyncGenerator<string, void> {
  return boundedLines(pieces, { maxLength: maxPrintedLength, leavesOutLong: true, turn: () => undefined });
}

/** `undefined` if the entry describes no exit. */
export function parseExit(json: string): MainExit | undefined {
  const entry = parseObject(json);
  const status = Number(entry?.["EXIT_STATUS"] ?? Number.NaN);
  if (!Number.isInteger(status)) return undefined;
  const cursor = entry?.["__CURSOR"];
  return {
    hasExited: entry?.["EXIT_CODE"] === "exited",
    status,
    ...(typeof cursor === "string" && { cursor }),
  };
}

/** `undefined` if the entry is not a log line. */
function parseLine(json: string): JournalLine | undefined {
  const entry = parseObject(json);
  if (entry === undefined) return undefined;
  const message = entry["MESSAGE"];
  const cursor = entry["__CURSOR"];
  // Invalid UTF-8 arrives as numbers.
  const text = Array.isArray(message) ? Buffer.from(message as number[]).toString() : message;
  if (typeof text !== "string" || typeof cursor !== "string") return undefined;
  return {
    cursor,
    timeMs: Math.floor(Number(entry["__REALTIME_TIMESTAMP"]) / 1000),
    stream: entry["_PID"] === "1" ? "svc" : "stdout",
    text: text.slice(0, maxTextLength),
  };
}

function parseObject(json: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(json) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
