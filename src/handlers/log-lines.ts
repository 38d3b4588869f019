import { timestampFromMs, timestampMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { LogStart } from "../runtimes/log-start.ts";
import type { LogChunk } from "../runtimes/runtime.ts";

/** The lines of a log, of an app or a container, as the contract shows them. */
export function logLines(lines: LogChunk["lines"], timestamps: boolean) {
  return lines.map(({ timeMs, stream, text }) => ({
    stream,
    text,
    ...(timestamps && { time: timestampFromMs(timeMs) }),
  }));
}

const defaultTail = 100;

/** Where the lines begin that a request asks for. */
export function logStart({
  tail,
  since,
}: {
  tail?: number | undefined;
  since?: Timestamp | undefined;
}): LogStart {
  return { tail: tail ?? defaultTail, ...(since && { sinceMs: timestampMs(since) }) };
}
