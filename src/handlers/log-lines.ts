import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { LogChunk } from "../runtimes/runtime.ts";

/** The lines of a log, of an app or a container, as the contract shows them. */
export function logLines(lines: LogChunk["lines"], timestamps: boolean) {
  return lines.map(({ timeMs, stream, text }) => ({
    stream,
    text,
    ...(timestamps && { time: timestampFromMs(timeMs) }),
  }));
}
