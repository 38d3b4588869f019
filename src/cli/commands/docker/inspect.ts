/** `svc docker inspect`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { containerFields } from "../../output/docker-table.ts";
import { calls } from "../../client/calls.ts";

export function addInspectCommand(parent: Command, run: RunCommand): void {
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
