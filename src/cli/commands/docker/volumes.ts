/** `svc docker volumes`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { volumeColumns } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";
import { watchable, watchOption } from "../../watched.ts";

export function addVolumesCommand(parent: Command, run: RunCommand): void {
  parent
    .command("volumes")
    .description("list the volumes, how many containers use each, and which an installed app needs")
    .option(...watchOption)
    .action(run(watchable(list)));
}

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listVolumes, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(volumeColumns(context.host.now()), answer.volumes, "There are no volumes.");
}
