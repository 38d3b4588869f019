/** `svc app logs`: the end of a log, and what comes after it. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { parseCount } from "../option-values.ts";
import type { RunCommand } from "../program.ts";
import { escapeControls } from "../render/escape.ts";
import { formatBytes } from "../render/units.ts";
import { calls } from "../transport/calls.ts";
import type { AppLogs } from "../transport/calls.ts";

interface LogsOptions {
  readonly tail: number;
  readonly follow?: boolean;
  readonly timestamps?: boolean;
}

export function addLogsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("logs")
    .description("show the last lines of an app's log")
    .argument("<id>", "the app")
    .option("-n, --tail <lines>", "how many lines, at most 100000", parseCount(0, 100_000), 100)
    .option("-f, --follow", "go on with every new line, until Ctrl-C")
    .option("-t, --timestamps", "begin each line with its time")
    .addHelpText(
      "after",
      "\nOn a terminal, control characters in a log are shown as \\xNN. A pipe or a file gets the lines as they are.\n",
    )
    .action(run((context, id: string, options: LogsOptions) => showLogs(context, id, options)));
}

async function showLogs(context: CommandContext, id: string, options: LogsOptions): Promise<void> {
  const timestamps = options.timestamps ?? false;
  if (options.follow === true) return followLogs(context, id, options.tail, timestamps);
  const logs = await context.call(calls.getAppLogs, { id, tail: options.tail, timestamps });
  return context.json ? context.printJson(logs) : printLogs(context, logs);
}

async function followLogs(
  context: CommandContext,
  id: string,
  tail: number,
  timestamps: boolean,
): Promise<void> {
  const { AppLogsSchema, AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  const client = await context.client();
  const request = { id, tail, timestamps };
  for await (const message of client.invoke(
    AppService.method.streamAppLogs,
    [request],
    context.callOptions,
  )) {
    const logs = messageToRest(AppLogsSchema, message);
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}

async function printLogs(context: CommandContext, logs: AppLogs): Promise<void> {
  const onTerminal = context.host.stdout.isTTY === true;
  const lines = logs.lines.map(({ time, stream, text }) => {
    const prefix = time === undefined ? "" : `${context.paint("dim", time)} `;
    const shown = onTerminal ? escapeControls(text) : text;
    return `${prefix}${context.paint(stream === "svc" ? "cyan" : undefined, shown)}\n`;
  });
  if (logs.truncated) context.note("The log is longer: these are its last 8 MiB.");
  if (logs.missed_bytes > 0) {
    context.note(`${formatBytes(logs.missed_bytes)} were rotated away before they could be read.`);
  }
  await context.print(lines.join(""));
}
