/** `svc docker images|volumes|networks`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { imageColumns, networkColumns, volumeColumns } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";
import { watchable, watchOption } from "../../watched.ts";

const lists = [
  ["images", "list the images, how many containers use each, and which an installed app needs", listImages],
  [
    "volumes",
    "list the volumes, how many containers use each, and which an installed app needs",
    listVolumes,
  ],
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
  return context.printTable(imageColumns(context.host.now()), answer.images, "There are no images.");
}

async function listVolumes(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listVolumes, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(volumeColumns(context.host.now()), answer.volumes, "There are no volumes.");
}

async function listNetworks(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listNetworks, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(networkColumns, answer.networks);
}
