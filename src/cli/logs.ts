/** The lines of a log, as `svc app logs` and `svc docker logs` print them. */
import type { CommandContext } from "./context.ts";
import { escapeControls } from "./render/escape.ts";
import type { Moment } from "./option-values.ts";
import { formatBytes } from "./render/units.ts";
import type { LogRequest } from "./seen-lines.ts";

export interface LogsOptions {
  readonly tail: number;
  /** All lines from then on instead. */
  readonly since?: Moment;
  readonly follow?: boolean;
  readonly timestamps?: boolean;
}

/** Lines that are shown when nothing else is said. */
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
  /** Of an app alone. */
  readonly missed_bytes?: number;
}

/** How the daemon is asked for a log, whosever it is. */
interface LogSource {
  /** The lines that are there, as REST has them. */
  readonly read: (asked: { tail: number; timestamps: boolean; since?: string }) => Promise<Logs>;
  /** Those and each new one. @param request what to ask for, each time that it begins */
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
  for await (const told of source.follow(() => seen.request())) {
    const logs = seen.news(told);
    if (logs === undefined) continue;
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}

async function printLogs(context: CommandContext, logs: Logs): Promise<void> {
  const { truncated, missed_bytes: missedBytes = 0 } = logs;
  const onTerminal = context.host.stdout.isTTY === true;
  const lines = logs.lines.map(({ time, stream, text }) => {
    const prefix = time === undefined ? "" : `${context.paint("dim", time)} `;
    const shown = onTerminal ? escapeControls(text) : text;
    return `${prefix}${context.paint(stream === "svc" ? "cyan" : undefined, shown)}\n`;
  });
  if (truncated) context.note("The log is longer: these are its last 8 MiB.");
  if (missedBytes > 0) {
    context.note(`${formatBytes(missedBytes)} were rotated away before they could be read.`);
  }
  await context.print(lines.join(""));
}
