/** Prints the lines of a log, for `svc app logs` and `svc docker logs`. */
import type { CommandContext } from "../context.ts";
import { escapeControls, escapeKeepingStyles } from "../output/escape.ts";
import type { Moment } from "../input/option-values.ts";
import { formatBytes } from "../output/units.ts";
import type { LogRequest } from "./seen-lines.ts";

export interface LogsOptions {
  readonly tail: number;
  /** All lines from this instant on, instead of a tail. */
  readonly since?: Moment;
  readonly follow?: boolean;
  readonly timestamps?: boolean;
}

/** Number of lines shown by default. */
export const defaultTail = 100;

interface LogLine {
  /** RFC 3339. */
  readonly time?: string | undefined;
  readonly stream: string;
  readonly text: string;
}

interface Logs {
  readonly lines: readonly LogLine[];
  readonly truncated: boolean;
  /** Only for apps. */
  readonly missed_bytes?: number;
}

/** How to request a log from the daemon, of an app or a container. */
interface LogSource {
  /** Returns the existing lines, as in REST. */
  readonly read: (asked: { tail: number; timestamps: boolean; since?: string }) => Promise<Logs>;
  /** Returns existing and new lines. @param request returns the request for each subscription */
  readonly follow: (request: () => LogRequest) => AsyncIterable<Logs>;
}

export async function showLogs(
  context: CommandContext,
  { tail, since, timestamps = false, follow = false }: LogsOptions,
  source: LogSource,
): Promise<void> {
  const sinceMs = since?.(context.host.now());
  if (!follow) {
    const moment = sinceMs === undefined ? {} : { since: new Date(sinceMs).toISOString() };
    const logs = await source.read({ tail, timestamps, ...moment });
    return context.json ? context.printJson(logs) : printLogs(context, logs);
  }
  const { SeenLines } = await import("./seen-lines.ts");
  const seen = new SeenLines(context, { tail, sinceMs, timestamps });
  for await (const response of source.follow(() => seen.request())) {
    const logs = seen.withNewLines(response);
    if (logs === undefined) continue;
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}

async function printLogs(context: CommandContext, logs: Logs): Promise<void> {
  const { truncated, missed_bytes: missedBytes = 0 } = logs;
  const escape = context.hasColor ? escapeKeepingStyles : escapeControls;
  const onTerminal = context.host.stdout.isTTY === true;
  const lines = logs.lines.map(({ time, stream, text }) => {
    const prefix = time === undefined ? "" : `${context.paint("dim", time)} `;
    const shown = onTerminal ? escape(text) : text;
    return `${prefix}${context.paint(stream === "svc" ? "cyan" : undefined, shown)}\n`;
  });
  if (truncated) context.note("The log is longer; only its last 8 MiB are shown.");
  if (missedBytes > 0) {
    context.note(`${formatBytes(missedBytes)} of the log were rotated before they could be read.`);
  }
  await context.print(lines.join(""));
}
