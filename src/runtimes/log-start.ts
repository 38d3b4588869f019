/** Where who reads a log begins. */
import type { LogChunk } from "./runtime.ts";

export interface LogStart {
  /** How many of the last lines. */
  readonly tail: number;
  /** All lines from then on instead, unix milliseconds. */
  readonly sinceMs?: number | undefined;
}

/** Of a log that is not followed. */
const maxLines = 100_000;

/** @param read the last so many lines */
export async function readSince(
  { tail, sinceMs }: LogStart,
  read: (tail: number) => Promise<LogChunk>,
): Promise<LogChunk> {
  if (sinceMs === undefined) return read(tail);
  const chunk = await read(maxLines);
  const lines = chunk.lines.filter(({ timeMs }) => timeMs >= sinceMs);
  const isWhole = lines.length < chunk.lines.length;
  return { ...chunk, lines, truncated: !isWhole && (chunk.truncated || lines.length >= maxLines) };
}
