/** `svc docker networks`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { networkColumns } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";
import { watchable, watchOption } from "../../watched.ts";

export function addNetworksCommand(parent: Command, run: RunCommand): void {
  parent
    .command("networks")
    .description("list the networks")
    .option(...watchOption)
    .action(run(watchable(list)));
}

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listNetworks, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(networkColumns, answer.networks);
}
