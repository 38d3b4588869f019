/** The lines of a unit in the journal, by cursor (journalctl(1)). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { systemDirs } from "../../identity/launch.ts";
import type { LogRecord } from "../runtime.ts";

export interface JournalQuestion {
  readonly unit: string;
  /** Whose lines are the app's; undefined: whoever runs in the unit. */
  readonly uid: number | undefined;
  /** Lines from before it are those of an app that had the name before, unix milliseconds. */
  readonly sinceMs: number;
  /** The last lines, this many, or those after a line. */
  readonly from: { readonly tail: number } | { readonly afterCursor: string };
  /** Goes on with new lines. */
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
}

export interface JournalLine extends LogRecord {
  readonly cursor: string;
}

/** Longer lines come cut: the journal itself keeps 48 KiB of one. */
const maxTextLength = 64 * 1024;
const fields = "MESSAGE,_PID";

/** Read as fast as they are taken: what nobody takes waits in the journal. */
export async function* readJournal(question: JournalQuestion): AsyncGenerator<JournalLine, void> {
  const { unit, uid, sinceMs, from, follow, signal } = question;
  if (signal?.aborted === true) return;
  const start = "tail" in from ? [`--lines=${from.tail}`] : [`--after-cursor=${from.afterCursor}`];
  const args = [
    ...["--no-pager", "--quiet", "--output=json", `--output-fields=${fields}`, "--all"],
    // A cursor stands for a moment; with a time beside it journalctl refuses to choose.
    ...("tail" in from ? [`--since=@${(sinceMs / 1000).toFixed(3)}`] : []),
    ...[...start, ...(follow ? ["--follow"] : [])],
    ...[`_SYSTEMD_UNIT=${unit}`, ...(uid === undefined ? [] : [`_UID=${uid}`])],
    // What systemd itself says of it.
    ...["+", `UNIT=${unit}`, "_PID=1"],
  ];
  const child = spawn("journalctl", args, {
    cwd: "/",
    env: { PATH: systemDirs.join(":") },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(child, "close").catch(() => undefined);
  const end = (): void => void child.kill("SIGKILL");
  signal?.addEventListener("abort", end, { once: true });
  try {
    for await (const text of createInterface({ input: child.stdout, crlfDelay: Infinity })) {
      const line = parseLine(text);
      if (line !== undefined) yield line;
    }
  } finally {
    signal?.removeEventListener("abort", end);
    end();
    await exited;
  }
}

/** `undefined` for what is no line of a log. */
export function parseLine(json: string): JournalLine | undefined {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(json) as Record<string, unknown>;
  } catch {
    return undefined;
  }
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
