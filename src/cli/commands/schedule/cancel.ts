/** `svc schedule cancel`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { calls } from "../../client/calls.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

export function addCancelCommand(parent: Command, run: RunCommand): void {
  parent
    .command("cancel")
    .description("cancel the current run of a job, with all its processes")
    .argument("<job>", "its id")
    .addOption(ownerOption())
    .action(run((context, id: string, options: OwnerOption) => cancel(context, id, options)));
}

async function cancel(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const run = await context.call(calls.cancelScheduleRun, jobRef(id, options));
  return context.printResult(run, `Run ${run.id} of ${id} is ${run.status}`);
}
