/** `svc docker logs`: the end of a container's log, and new lines with `--follow`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { addLogsOptions } from "../../input/logs-options.ts";
import { showLogs, type LogsOptions } from "../../logs/logs.ts";
import type { RunCommand } from "../../run-command.ts";
import { calls } from "../../client/calls.ts";

export function addLogsCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("logs")
    .description("show the last lines of a container's log")
    .argument("<container>", "name, ID or ID prefix");
  addLogsOptions(command, "the container ends or Ctrl-C").action(
    run((context, container: string, options: LogsOptions) => showContainerLogs(context, container, options)),
  );
}

function showContainerLogs(context: CommandContext, container: string, options: LogsOptions): Promise<void> {
  return showLogs(context, options, {
    read: (query) => context.call(calls.getContainerLogs, { container, ...query }),
    follow: async function* (request) {
      const { ContainerLogsSchema, DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
      const { messageToRest } = await import("../../client/rest-json.ts");
      const method = DockerService.method.streamContainerLogs;
      for await (const message of context.follow(method, () => ({ container, ...request() })))
        yield messageToRest<typeof ContainerLogsSchema, "camel">(ContainerLogsSchema, message);
    },
  });
}
