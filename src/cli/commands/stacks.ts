/** `svc stacks`: the compose projects of apps. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { calls } from "../client/calls.ts";
import { watchable, watchOption } from "../output/watched.ts";

export function addStacksCommand(parent: Command, run: RunCommand): void {
  parent
    .command("stacks")
    .description("list the compose projects of apps")
    .option(...watchOption)
    .action(run(watchable(listStacks)));
}

async function listStacks(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listStacks, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(
    [
      { title: "STACK", value: (stack) => stack.name },
      { title: "APP", value: (stack) => stack.app_id, shrinkTo: 12 },
      {
        title: "SERVICES",
        value: (stack) => stack.services.map(({ name, state }) => `${name} (${state})`).join(", "),
        shrinkTo: 12,
      },
    ],
    answer.stacks,
    "No compose apps installed.",
  );
}
