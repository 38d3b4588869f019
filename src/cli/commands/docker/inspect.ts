/** `svc docker inspect`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { containerFields } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";

export function addInspectCommand(parent: Command, run: RunCommand): void {
  parent
    .command("inspect")
    .description("show one container; with --json also the engine's own document, environment included")
    .argument("<container>", "its name, id or the beginning of its id")
    .action(run((context, container: string) => inspect(context, container)));
}

async function inspect(context: CommandContext, container: string): Promise<void> {
  const details = await context.call(calls.inspectContainer, { container });
  if (context.json) return context.printJson(details);
  return context.printFields(containerFields(details));
}
