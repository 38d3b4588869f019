/** `svc schedule cancel`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { escapeControls } from "../../render/escape.ts";
import { calls } from "../../transport/calls.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

export function addCancelCommand(parent: Command, run: RunCommand): void {
  parent
    .command("cancel")
    .description("end the run under way, with every process of it")
    .argument("<job>", "its id")
    .addOption(ownerOption())
    .action(run((context, id: string, options: OwnerOption) => cancel(context, id, options)));
}

async function cancel(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const run = await context.call(calls.cancelScheduleRun, jobRef(id, options));
  if (context.json) return context.printJson(run);
  return context.print(`${escapeControls(`Run ${run.id} of ${id} is ${run.status}`)}\n`);
}
