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
  /** True: fewer lines than requested, because together they exceed the byte limit. */
  readonly truncated: boolean;
  /** Bytes that were rotated away before this reader read them. The lines follow this gap. */
  readonly missedBytes: number;
  /** The position in the log after these lines, for {@link LogPosition}; absent if the runtime has no positions. */
  readonly position?: number;
}

/** The position up to which a reader followed a log. */
export interface LogPosition {
  /** Time of the last line, unix milliseconds. */
  readonly timeMs: number;
  readonly position?: number | undefined;
}

/** The position at which a reader starts. */
export interface LogStart {
  /** The number of last lines. */
  readonly tail: number;
  /** Alternatively, the time of the first line, unix milliseconds. */
  readonly sinceMs?: number | undefined;
}

/** The lines of a log that is not followed. */
const maxLines = 100_000;

/** @param read reads that many last lines */
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
