/**
 * Log records as lines, see `log-files.mjs` for their form.
 */

/** One line of an app's log. */
export interface LogLine {
  /** When it was read from the app, RFC 3339 with milliseconds. */
  at: string;
  /** `supervisor` for remarks on restarts and losses. */
  stream: "stdout" | "stderr" | "supervisor";
  text: string;
  /** The line was longer than 64 KiB and goes on in the next one of the same stream. */
  partial: boolean;
}

/** A reader was too slow: this much of the log was rotated away before it got there. */
export interface LogGap {
  missedBytes: number;
}

const RECORD = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([oesOES]) (.*)$/su;
const STREAMS = { o: "stdout", e: "stderr", s: "supervisor" } as const;

/** The lines in a stretch of the log; what is no record (the owner may write there) is left out. */
export function parseRecords(text: string): LogLine[] {
  const lines: LogLine[] = [];
  for (const record of text.split("\n")) {
    const [, at, letter, content] = RECORD.exec(record) ?? [];
    if (at === undefined || letter === undefined || content === undefined) continue;
    const source = letter.toLowerCase() as keyof typeof STREAMS;
    lines.push({ at, stream: STREAMS[source], text: content, partial: letter !== source });
  }
  return lines;
}
