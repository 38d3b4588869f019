/** The progress and last lines of a running operation, with a signal that wakes its followers. */
import type { Progress } from "../work/progress.ts";
import type { OperationRecord } from "./operation-record.ts";

export const maxLines = 200;
export const maxLineBytes = 1024;

/**
 * Applies a progress report. A new step or message adds a line; further bytes of the same step do not.
 * @returns whether it added a line
 */
export function report(record: OperationRecord, progress: Progress, atMs: number): boolean {
  const { step = "", message = "", doneBytes, totalBytes, stepNumber, stepCount, service = "" } = progress;
  const text = cutToBytes(message, maxLineBytes);
  const isNew =
    step !== record.phase || service !== record.service || (text !== "" && text !== record.message);
  record.phase = step;
  record.message = text;
  record.doneBytes = doneBytes === undefined ? undefined : Number(doneBytes);
  record.totalBytes = totalBytes === undefined ? undefined : Number(totalBytes);
  record.stepNumber = stepNumber;
  record.stepCount = stepCount;
  record.service = service;
  if (!isNew) return false;
  const number = (record.lines.at(-1)?.number ?? 0) + 1;
  record.lines.push({ number, atMs, phase: step, text, stepNumber, stepCount, service });
  if (record.lines.length > maxLines) record.lines.shift();
  return true;
}

/** The start of a text, without broken characters; `…` marks a truncated text. */
export function cutToBytes(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  const mark = "…";
  const bytes = Buffer.from(text).subarray(0, maxBytes - Buffer.byteLength(mark));
  // An incomplete character decodes to U+FFFD.
  return bytes.toString("utf8").replace(/\uFFFD$/, "") + mark;
}
