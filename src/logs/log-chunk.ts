/** Lines of a log as runtimes and the container engine return them. */
import type { LogLineStream } from "../../gen/svc/v1/values.ts";

export interface LogRecord {
  /** Unix milliseconds. */
  readonly timeMs: number;
  readonly stream: LogLineStream;
  readonly text: string;
}

/** Lines of a log, oldest first. */
export interface LogChunk {
  readonly lines: readonly LogRecord[];
  /** True: fewer lines than asked for, because together they pass the byte bound. */
  readonly truncated: boolean;
  /** Bytes of the log that were rotated away before this reader got to them; the lines follow the gap. */
  readonly missedBytes: number;
  /** Where in the log it ends, for {@link LogPosition}; absent where a runtime knows no such place. */
  readonly position?: number;
}

/** How far a log was followed. */
export interface LogPosition {
  /** Of the last line, unix milliseconds. */
  readonly timeMs: number;
  readonly position?: number | undefined;
}

/** Where a reader starts in a log. */
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
