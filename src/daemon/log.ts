/** The daemon's log: one JSON object per line on standard error, without secrets. */
import { fstatSync, readlinkSync } from "node:fs";
import { pino, type Logger } from "pino";
import type { LogLevel } from "./config.ts";

export type DaemonLog = Logger;

/** The prefix that the journal removes from a line and stores as its priority (sd-daemon(3)), by pino's level. */
const journalPrefixes: Readonly<Record<string, string>> = {
  10: "<7>",
  20: "<7>",
  30: "<6>",
  40: "<4>",
  50: "<3>",
  60: "<2>",
};

/**
 * Writes asynchronously; buffered lines are written when the process exits.
 * @param isJournal whether systemd's journal reads standard error
 */
export function createLog(level: LogLevel, isJournal = false): DaemonLog {
  const destination = pino.destination({ fd: 2, sync: false });
  const hooks = isJournal ? { streamWrite: withPriority } : {};
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, hooks }, destination);
}

/** Where {@link createLog} writes: `journal`, the path of a file, or empty for a terminal or a pipe. */
export function logDestination(isJournal = false): string {
  if (isJournal) return "journal";
  try {
    return fstatSync(2).isFile() ? readlinkSync("/proc/self/fd/2") : "";
  } catch {
    return "";
  }
}

function withPriority(line: string): string {
  const level = /^\{"level":(\d+)/.exec(line)?.[1] ?? "";
  return `${journalPrefixes[level] ?? ""}${line}`;
}
