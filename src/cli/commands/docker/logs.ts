/** `svc docker logs`: the end of a container's log, and what comes after it. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { addLogsOptions } from "../../logs-options.ts";
import { printLogs, type LogsOptions } from "../../logs.ts";
import type { RunCommand } from "../../run-command.ts";
import { SeenLines, type FollowedLog } from "../../seen-lines.ts";
import { calls } from "../../transport/calls.ts";

export function addLogsCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("logs")
    .description("show the last lines of a container's log")
    .argument("<container>", "its name, id or the beginning of its id");
  addLogsOptions(command, "the container ends or Ctrl-C").action(
    run((context, container: string, options: LogsOptions) => showLogs(context, container, options)),
  );
}

async function showLogs(context: CommandContext, container: string, options: LogsOptions): Promise<void> {
  const { tail, since, timestamps = false, follow = false } = options;
  const sinceMs = since?.(context.host.now());
  if (follow) return followLogs(context, { container, tail, sinceMs, timestamps });
  const logs = await context.call(calls.getContainerLogs, {
    ...{ container, tail, timestamps },
    ...(sinceMs !== undefined && { since: new Date(sinceMs).toISOString() }),
  });
  return context.json ? context.printJson(logs) : printLogs(context, logs);
}

async function followLogs(
  context: CommandContext,
  { container, ...log }: { container: string } & FollowedLog,
): Promise<void> {
  const { ContainerLogsSchema, DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
  const { messageToRest } = await import("../../transport/rest-json.ts");
  const seen = new SeenLines(context, log);
  const method = DockerService.method.streamContainerLogs;
  for await (const message of context.follow(method, () => ({ container, ...seen.request() }))) {
    const logs = seen.news(messageToRest<typeof ContainerLogsSchema, "camel">(ContainerLogsSchema, message));
    if (logs === undefined) continue;
    await (context.json ? context.printJsonLine(logs) : printLogs(context, logs));
  }
}
