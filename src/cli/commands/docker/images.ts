/** `svc docker images`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { imageColumns } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";
import { watchable, watchOption } from "../../watched.ts";

export function addImagesCommand(parent: Command, run: RunCommand): void {
  parent
    .command("images")
    .description("list the images, how many containers use each, and which an installed app needs")
    .option(...watchOption)
    .action(run(watchable(list)));
}

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listImages, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(imageColumns(context.host.now()), answer.images, "There are no images.");
}
