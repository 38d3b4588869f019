/** Log lines of an app or a container as messages. */
import { timestampFromMs, timestampMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import { invalidField } from "../../errors.ts";
import type { AppLogStart } from "../../apps/lifecycle/app-logs.ts";
import type { LogPart, LogStart } from "../../logs/log-chunk.ts";
import type { LogPosition } from "../../logs/log-position.ts";

/** The fields that the logs of apps and of containers share. */
export function logFields({ lines, truncated, position }: LogPart, timestamps: boolean) {
  return {
    lines: lines.map(({ timeMs, stream, text }) => ({
      ...{ stream, text },
      ...(timestamps && { time: timestampFromMs(timeMs) }),
    })),
    ...{ truncated, cursor: formatCursor(position) },
  };
}

const defaultTail = 100;

interface LogRequest {
  readonly tail?: number | undefined;
  readonly since?: Timestamp | undefined;
  readonly after: string;
}

/** Like {@link logStart}, for an app or one of its services. */
export function appLogStart({ service, ...from }: LogRequest & { readonly service: string }): AppLogStart {
  return { ...logStart(from), ...(service !== "" && { service }) };
}

/** The start of the requested lines. @throws SvcError `invalid_argument` */
export function logStart({ tail = defaultTail, since, after }: LogRequest): LogStart {
  if (after === "") return { tail, after: since && { timeMs: timestampMs(since), count: 0 } };
  if (since !== undefined) throw invalidField("since", "must be absent if after is set");
  return { tail, after: parseCursor(after) };
}

/** The position as the contract's cursor. */
function formatCursor({ timeMs, count, offset }: LogPosition): string {
  return [timeMs, count, ...(offset === undefined ? [] : [offset])].join(".");
}

/** @throws SvcError `invalid_argument` */
function parseCursor(cursor: string): LogPosition {
  if (!/^\d{1,15}\.\d{1,9}(\.\d{1,15})?$/.test(cursor))
    throw invalidField("after", `must be the cursor of an earlier response, got ${JSON.stringify(cursor)}`);
  const [timeMs = 0, count = 0, offset] = cursor.split(".").map(Number);
  return { timeMs, count, offset };
}
