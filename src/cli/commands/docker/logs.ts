/** `svc docker logs`: the end of a container's log, and what comes after it. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../program.ts";
import { escapeControls } from "../../render/escape.ts";
import { calls } from "../../transport/calls.ts";
import type { ContainerLogs } from "../../transport/calls.ts";

interface LogsOptions {
  readonly tail: number;
  readonly follow?: boolean;
  readonly timestamps?: boolean;
}

export function addLogsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("logs")
    .description("show the last lines of a container's log")
    .argument("<container>", "its name, id or the beginning of its id")
    .option("-n, --tail <lines>", "how many lines, at most 100000", parseCount(0, 100_000), 100)
    .option("-f, --follow", "go on with every new line, until the container ends or Ctrl-C")
    .option("-t, --timestamps", "begin each line with its time")
    .addHelpText(
      "after",
      "\nOn a terminal, control characters in a log are shown as \\xNN. A pipe or a file gets the lines as they are.\n",
    )
    .action(run((context, container: string, options: LogsOptions) => showLogs(context, container, options)));
}

async function showLogs(context: CommandContext, container: string, options: LogsOptions): Promise<void> {
  const { tail, timestamps = false, follow = false } = options;
  if (follow) return followLogs(context, { container, tail, timestamps });
  const logs = await context.call(calls.getContainerLogs, { container, tail, timestamps });
  return context.json ? context.printJson(logs) : printLogs(context, logs);
}

async function followLogs(
  context: CommandContext,
  request: { container: string; tail: number; timestamps: boolean },
): Promise<void> {
  const { ContainerLogsSchema, DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
  const { messageToRest } = await import("../../transport/rest-json.ts");
  const client = await context.client();
  const method = DockerService.method.streamContainerLogs;
  for await (const message of client.invoke(method, [request], context.callOptions)) {
    const logs = messageToRest<typeof ContainerLogsSchema, "camel">(ContainerLogsSchema, message);
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}

async function printLogs(context: CommandContext, logs: ContainerLogs): Promise<void> {
  const onTerminal = context.host.stdout.isTTY === true;
  const lines = logs.lines.map(({ time, text }) => {
    const prefix = time === undefined ? "" : `${context.paint("dim", time)} `;
    return `${prefix}${onTerminal ? escapeControls(text) : text}\n`;
  });
  if (logs.truncated) context.note("The log is longer: these are its last 8 MiB.");
  await context.print(lines.join(""));
}
