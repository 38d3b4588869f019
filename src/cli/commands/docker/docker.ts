/** `svc docker …`: all containers, images, volumes and networks of the host, not only those of apps. */
import type { Command } from "commander";
import type { RunCommand } from "../../run-command.ts";
import { addControlCommands } from "./control.ts";
import { addDfCommand } from "./df.ts";
import { addEventsCommand } from "./events.ts";
import { addListCommands } from "./lists.ts";
import { addLogsCommand } from "./logs.ts";
import { addPruneCommand } from "./prune.ts";
import { addPsCommand } from "./ps.ts";
import { addStatsCommand } from "./stats.ts";
import type { CommandContext } from "../../context.ts";
import { containerFields } from "../../output/docker-table.ts";
import { calls } from "../../client/calls.ts";

export function addDockerCommand(parent: Command, run: RunCommand): void {
  const docker = parent
    .command("docker")
    .description("manage the host's containers, images, volumes and networks; needs root")
    .addHelpText("after", examples);
  for (const add of [
    addPsCommand,
    addStatsCommand,
    addControlCommands,
    addInspectCommand,
    addLogsCommand,
    addEventsCommand,
    addListCommands,
    addDfCommand,
    addPruneCommand,
  ]) {
    add(docker, run);
  }
}

const examples = `
Objects of installed apps are listed, but never changed or pruned here: use svc start, stop, restart and remove.

Examples:
  svc docker ps --all
  svc docker stop web db
  svc docker restart --project shop
  svc docker logs --follow web
  svc docker prune images --dry-run
`;

function addInspectCommand(parent: Command, run: RunCommand): void {
  parent
    .command("inspect")
    .description("show one container; --json adds the engine's full document with the environment")
    .argument("<container>", "name, ID or ID prefix")
    .action(run((context, container: string) => inspect(context, container)));
}

async function inspect(context: CommandContext, container: string): Promise<void> {
  const details = await context.call(calls.inspectContainer, { container });
  if (context.json) return context.printJson(details);
  return context.printFields(containerFields(details));
}
