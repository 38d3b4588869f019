import { timestampFromMs, timestampMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { LogChunk, LogStart } from "../../logs/log-chunk.ts";

/** Log lines of an app or a container as messages. */
export function logLines(lines: LogChunk["lines"], timestamps: boolean) {
  return lines.map(({ timeMs, stream, text }) => ({
    stream,
    text,
    ...(timestamps && { time: timestampFromMs(timeMs) }),
  }));
}

const defaultTail = 100;

/** The start of the requested lines. */
export function logStart({
  tail,
  since,
}: {
  tail?: number | undefined;
  since?: Timestamp | undefined;
}): LogStart {
  return { tail: tail ?? defaultTail, ...(since && { sinceMs: timestampMs(since) }) };
}
