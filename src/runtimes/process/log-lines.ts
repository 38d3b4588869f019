/** Parses the records of a log; see `log-files.mjs`. Lines over 64 KiB come in pieces. */
import type { LogRecord } from "../../logs/log-chunk.ts";

const recordForm = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([oesOES]) (.*)$/su;
const streamOfLetter = { o: "stdout", e: "stderr", s: "svc" } as const;

/** The lines in a part of the log, without invalid records, because the owner may write to the file. */
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
