/** `svc docker ps`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { containerColumns } from "../../output/docker-table.ts";
import { calls } from "../../client/calls.ts";
import { watchable, watchOption } from "../../output/watched.ts";

interface PsOptions {
  readonly all?: boolean;
  readonly size?: boolean;
}

export function addPsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ps")
    .description("list the running containers with the app that owns them")
    .option("-a, --all", "include stopped containers")
    .option("-s, --size", "show the disk usage of each container (slow)")
    .option(...watchOption)
    .action(run(watchable((context, options: PsOptions) => list(context, options))));
}

async function list(context: CommandContext, { all = false, size = false }: PsOptions): Promise<void> {
  const answer = await context.call(calls.listContainers, { all, size });
  if (context.json) return context.printJson(answer);
  const { containers } = answer;
  const none = all
    ? "No containers found."
    : "No container is running. To see all containers: svc docker ps --all";
  return context.printTable(containerColumns(containers, size), containers, none);
}
