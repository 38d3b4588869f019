/**
 * The log as lines, see `log-files.mjs` for the form of its records. A line of more than 64 KiB comes in pieces.
 */
import type { LogRecord } from "../runtime.ts";

const recordForm = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([oesOES]) (.*)$/su;
const streamOfLetter = { o: "stdout", e: "stderr", s: "svc" } as const;

/** The lines in a stretch of the log; what is no record (the owner may write there) is left out. */
export function parseRecords(text: string): LogRecord[] {
  const lines: LogRecord[] = [];
  for (const record of text.split("\n")) {
    const [, at, letter, content] = recordForm.exec(record) ?? [];
    if (at === undefined || letter === undefined || content === undefined) continue;
    const source = letter.toLowerCase() as keyof typeof streamOfLetter;
    lines.push({ timeMs: Date.parse(at), stream: streamOfLetter[source], text: content });
  }
  return lines;
}
