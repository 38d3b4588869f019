/** `svc docker images|volumes|networks`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { imageColumns, networkColumns, volumeColumns } from "../../output/docker-table.ts";
import { calls } from "../../client/calls.ts";
import { watchable, watchOption } from "../../output/watched.ts";

const lists = [
  ["images", "list images with the number of containers and whether an app needs them", listImages],
  ["volumes", "list volumes with the number of containers and whether an app needs them", listVolumes],
  ["networks", "list the networks", listNetworks],
] as const;

export function addListCommands(parent: Command, run: RunCommand): void {
  for (const [name, description, list] of lists) {
    parent
      .command(name)
      .description(description)
      .option(...watchOption)
      .action(run(watchable(list)));
  }
}

async function listImages(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listImages, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(imageColumns(context.host.now()), answer.images, "No images found.");
}

async function listVolumes(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listVolumes, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(volumeColumns(context.host.now()), answer.volumes, "No volumes found.");
}

async function listNetworks(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listNetworks, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(networkColumns, answer.networks);
}
