/** Prints the lines of a log, for `svc logs` and `svc docker logs`. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { CommandContext } from "../context.ts";
import { escapeControls, escapeKeepingStyles } from "../output/escape.ts";
import type { Moment } from "../input/option-values.ts";
import { formatBytes } from "../output/units.ts";

export interface LogsOptions {
  /** Default: {@link defaultTail}, or all lines since an instant. */
  readonly tail?: number;
  /** Only lines from this instant on. */
  readonly since?: Moment;
  /** Only lines until this instant. */
  readonly until?: Moment;
  /** Only lines that match. */
  readonly grep?: RegExp;
  readonly follow?: boolean;
  readonly timestamps?: boolean;
}

/** Number of lines shown by default. */
export const defaultTail = 100;
/** The most lines that a request returns. */
export const maxTail = 100_000;

interface LogLine {
  /** RFC 3339. */
  readonly time?: string | undefined;
  readonly stream: string;
  readonly text: string;
}

interface Logs {
  readonly lines: readonly LogLine[];
  readonly cursor: string;
  readonly truncated: boolean;
  /** Only for apps. */
  readonly missed_bytes?: number;
}

/** Where to start: with the last lines, with those since an instant, or after a cursor. */
interface LogPlace {
  readonly tail?: number;
  readonly since?: Timestamp;
  readonly after?: string;
}

/** The fields of the contract's log requests. */
interface LogRequest extends LogPlace {
  readonly timestamps: boolean;
}

/** How to request a log from the daemon, of an app or a container. */
export interface LogSource {
  /** Returns the existing lines, as in REST. */
  readonly read: (query: { tail: number; timestamps: boolean; since?: string }) => Promise<Logs>;
  /** Returns existing and new lines. @param request returns the request for each subscription */
  readonly follow: (request: () => LogRequest) => AsyncIterable<Logs>;
}

/** @param prefix begins each line of text, such as the name of the app */
export async function showLogs(
  context: CommandContext,
  options: LogsOptions,
  source: LogSource,
  prefix = "",
): Promise<void> {
  if (options.follow !== true) {
    const logs = await readLogs(context, options, source);
    return context.json ? context.printJson(logs) : printLogs(context, logs, prefix);
  }
  const { since, timestamps = false, grep } = options;
  const { tail = defaultTail } = options;
  const sinceMs = since?.(context.host.now());
  const { timestampFromMs } = await import("@bufbuild/protobuf/wkt");
  let place: LogPlace = { tail, ...(sinceMs !== undefined && { since: timestampFromMs(sinceMs) }) };
  if (sinceMs !== undefined && options.tail !== undefined) {
    const logs = await readLogs(context, options, source);
    if (logs.cursor !== "") place = { after: logs.cursor };
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs, prefix));
  }
  const beganMs = context.host.now();
  const request = (): LogRequest => {
    const query = { ...place, timestamps };
    // After an outage without a line before, new lines start where the first subscription did.
    if (tail === 0 && sinceMs === undefined && place.after === undefined)
      place = { since: timestampFromMs(beganMs) };
    return query;
  };
  for await (const logs of source.follow(request)) {
    if (logs.cursor !== "") place = { after: logs.cursor };
    const shown = { ...logs, lines: logs.lines.filter(({ text }) => grep?.test(text) ?? true) };
    if (grep !== undefined && shown.lines.length === 0) continue;
    await (context.json ? context.printJsonLine(shown) : printLogs(context, shown, prefix));
  }
}

/** The existing lines that the options select. */
export async function readLogs(
  context: CommandContext,
  { tail, since, until, timestamps = false, grep }: LogsOptions,
  source: LogSource,
): Promise<Logs> {
  const count = tail ?? (since === undefined ? defaultTail : Infinity);
  const nowMs = context.host.now();
  const [sinceMs, untilMs] = [since?.(nowMs), until?.(nowMs)];
  const isFiltered =
    grep !== undefined || untilMs !== undefined || (sinceMs !== undefined && tail !== undefined);
  const logs = await source.read({
    tail: isFiltered ? maxTail : (tail ?? defaultTail),
    timestamps: timestamps || untilMs !== undefined,
    ...(sinceMs !== undefined && { since: new Date(sinceMs).toISOString() }),
  });
  if (!isFiltered) return logs;
  const lines = logs.lines
    .filter(({ text }) => grep?.test(text) ?? true)
    .filter(({ time }) => untilMs === undefined || time === undefined || Date.parse(time) <= untilMs)
    .map((line) => (timestamps ? line : withoutTime(line)));
  return {
    ...logs,
    lines: count < lines.length ? lines.slice(lines.length - count) : lines,
  };
}

export function withoutTime({ time: _time, ...line }: LogLine): LogLine {
  return line;
}

async function printLogs(context: CommandContext, logs: Logs, prefix = ""): Promise<void> {
  const { truncated, missed_bytes: missedBytes = 0 } = logs;
  if (truncated) context.note(`${prefix}The log is longer; only its last 8 MiB are shown.`);
  if (missedBytes > 0) {
    context.note(`${prefix}${formatBytes(missedBytes)} of the log were rotated before they could be read.`);
  }
  await context.print(logs.lines.map((line) => `${prefix}${lineText(context, line)}\n`).join(""));
}

export function lineText(context: CommandContext, { time, stream, text }: LogLine): string {
  const escape = context.hasColor ? escapeKeepingStyles : escapeControls;
  const clock = time === undefined ? "" : `${context.paint("dim", time)} `;
  const shown = context.host.stdout.isTTY === true ? escape(text) : text;
  return `${clock}${context.paint(stream === "svc" ? "cyan" : undefined, shown)}`;
}
