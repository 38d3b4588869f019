/** The lines of a log, as `svc app logs` and `svc docker logs` print them. */
import type { CommandContext } from "./context.ts";
import { escapeControls } from "./render/escape.ts";
import type { Moment } from "./option-values.ts";
import { formatBytes } from "./render/units.ts";

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

export async function printLogs(context: CommandContext, logs: Logs): Promise<void> {
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
