/** The lines of a unit in the journal, by cursor (journalctl(1)). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { SvcError } from "../../errors.ts";
import { systemDirs } from "../../identity/launch.ts";
import { boundedLines } from "../../lib/lines.ts";
import type { LogRecord } from "../runtime.ts";

export interface JournalQuestion {
  readonly unit: string;
  /** Whose lines are the app's; undefined: whoever runs in the unit. */
  readonly uid: number | undefined;
  /** Lines from before it are those of an app that had the name before, unix milliseconds. */
  readonly sinceMs: number;
  /** The newest lines, this many and newest first; or those after a line, or from an instant on, oldest first. */
  readonly from: { readonly newest: number } | { readonly afterCursor: string } | { readonly fromMs: number };
  /** Goes on with new lines; not with the newest. */
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
}

export interface JournalLine extends LogRecord {
  readonly cursor: string;
}

/** How a process ended. */
export interface MainExit {
  /** Where the journal says so: another end has another one. */
  readonly cursor?: string;
  /** False: a signal ended it. */
  readonly hasExited: boolean;
  /** Its exit code, or the number of the signal. */
  readonly status: number;
}

/** "Main process exited", of systemd's own messages. */
const mainExited = "98e322203f7a4ed290d09fe03c09fe15";
const exitMs = 10_000;
/** Longer lines come cut: the journal itself keeps 48 KiB of one. */
const maxTextLength = 64 * 1024;
/**
 * Of a line that journalctl prints, in which each byte may be a number. Whoever speaks to the journal itself may send megabytes
 * in one message, which nobody reads, and all would wait for: it is left out.
 */
const maxPrintedLength = 512 * 1024;
const fields = "MESSAGE,_PID";
const asJson = ["--no-pager", "--quiet", "--output=json"];

const since = (ms: number): string => `--since=@${(ms / 1000).toFixed(3)}`;
/** With a time, older journalctl counts lines from there on, unless the newest come first. */
const newestFirst = (lines: number): string[] => ["--reverse", `--lines=${lines}`];

/**
 * Read as fast as they are taken: what nobody takes waits in the journal.
 * @throws SvcError `unavailable` when the journal cannot be read, or not to its end
 */
export async function* readJournal(question: JournalQuestion): AsyncGenerator<JournalLine, void> {
  const { unit, uid, sinceMs, from, follow, signal } = question;
  if (signal?.aborted === true) return;
  const start =
    "newest" in from
      ? [since(sinceMs), ...newestFirst(from.newest)]
      : "fromMs" in from
        ? [since(Math.max(from.fromMs, sinceMs)), "--lines=all"]
        : // A cursor stands for a moment; with a time beside it journalctl refuses to choose.
          [`--after-cursor=${from.afterCursor}`, "--lines=all"];
  const args = [
    ...[...asJson, `--output-fields=${fields}`, "--all"],
    ...[...start, ...(follow ? ["--follow"] : [])],
    ...[`_SYSTEMD_UNIT=${unit}`, ...(uid === undefined ? [] : [`_UID=${uid}`])],
    // What systemd itself says of it.
    ...["+", `UNIT=${unit}`, "_PID=1"],
  ];
  for await (const text of printed(args, signal)) {
    const line = parseLine(text);
    if (line !== undefined) yield line;
  }
}

/**
 * How the main process of a unit ended the last time: systemd itself knows only of the one that it started since.
 * @returns `undefined` when the journal does not say
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

/** Lines of what journalctl prints, until it ends or the signal aborts. @throws SvcError `unavailable` when it failed */
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

/** The lines of what journalctl prints that are no longer than any of an app's output. */
export function journalLines(pieces: AsyncIterable<string>): AsyncGenerator<string, void> {
  return boundedLines(pieces, { maxLength: maxPrintedLength, leavesOutLong: true, turn: () => undefined });
}

/** `undefined` for what says nothing of an end. */
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

/** `undefined` for what is no line of a log. */
function parseLine(json: string): JournalLine | undefined {
  const entry = parseObject(json);
  if (entry === undefined) return undefined;
  const message = entry["MESSAGE"];
  const cursor = entry["__CURSOR"];
  // Bytes that are no UTF-8 come as numbers.
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
