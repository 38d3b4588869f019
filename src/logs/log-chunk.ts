/** Lines of a log as runtimes and the container engine return them. */
import type { LogLineStream } from "../../gen/svc/v1/values.ts";
import { NewLines, type LogPosition } from "./log-position.ts";

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
  /** Bytes of the log up to the end of these lines; absent if the runtime does not count them. */
  readonly offset?: number;
}

/** Lines of a log, and the position after the last one. */
export interface LogPart extends LogChunk {
  readonly position: LogPosition;
}

/** The place at which a reader starts. */
export interface LogStart {
  /** The number of last lines. */
  readonly tail: number;
  /** Alternatively, all lines after this position. */
  readonly after?: LogPosition | undefined;
}

/** The lines of a log that is not followed. */
const maxLines = 100_000;

/** Lines before the requested ones that are read, too, to count those with the time of the last one. */
export const linesBefore = 200;

/** @param read reads that many last lines */
export async function readLog(
  { tail, after }: LogStart,
  read: (tail: number) => Promise<LogChunk>,
): Promise<LogPart> {
  const log = new NewLines(after);
  if (after === undefined) {
    const chunk = await read(tail < 1 ? 0 : tail + linesBefore);
    const lines = tail < 1 ? [] : log.select(chunk).slice(-tail);
    return { ...chunk, lines, position: log.position, truncated: chunk.truncated && lines.length < tail };
  }
  const chunk = await read(maxLines);
  const lines = log.select(chunk);
  const isWhole = lines.length < chunk.lines.length;
  const truncated = !isWhole && (chunk.truncated || lines.length >= maxLines);
  return { ...chunk, lines, position: log.position, truncated };
}

/** The new lines of a reading in progress. */
export async function* newParts(
  chunks: AsyncIterable<LogChunk>,
  log: NewLines,
): AsyncGenerator<LogPart, void> {
  for await (const chunk of chunks) {
    const lines = log.select(chunk);
    if (lines.length > 0 || chunk.missedBytes > 0) yield { ...chunk, lines, position: log.position };
  }
}
