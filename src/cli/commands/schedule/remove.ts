/** `svc schedule remove`. */
import type { Command } from "commander";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { forEachApp } from "../../each-app.ts";
import { UsageError } from "../../failure.ts";
import type { RunCommand } from "../../program.ts";
import { confirm, isInteractive } from "../../prompt.ts";
import { escapeControls } from "../../render/escape.ts";
import { calls } from "../../transport/calls.ts";
import { advised } from "./advice.ts";
import { getJob, warnIfManaged } from "./jobs.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

export function addRemoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("remove")
    .alias("rm")
    .description("remove jobs and their runs; one that goes is canceled (asks first; --yes does not)")
    .argument("<job...>", "their ids")
    .addOption(ownerOption())
    .action(run((context, ids: string[], options: OwnerOption) => remove(context, ids, options)));
}

async function remove(context: CommandContext, ids: readonly string[], owner: OwnerOption): Promise<void> {
  if (context.options.yes !== true) await confirmRemoval(context, ids);
  await forEachApp(context, ids, {
    call: async (id) => {
      try {
        warnIfManaged(context, await getJob(context, id, owner));
        return await context.call(calls.removeSchedule, jobRef(id, owner));
      } catch (error) {
        throw advised(context, error);
      }
    },
    text: ({ id }) => `Removed ${id}`,
  });
}

async function confirmRemoval(context: CommandContext, ids: readonly string[]): Promise<void> {
  if (!isInteractive(context.host)) {
    throw new UsageError("removing a job removes its runs, too: confirm with --yes");
  }
  const names = escapeControls(ids.join(", "));
  if (await confirm(context.host, `Remove ${names} with all recorded runs?`)) return;
  throw new SvcError("failed_precondition", "canceled", "nothing was removed");
}
