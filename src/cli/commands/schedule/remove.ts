/** `svc schedule remove`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { forEachName } from "../../for-each.ts";
import { warnIfManaged } from "../../managed.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../input/prompt.ts";
import { calls } from "../../client/calls.ts";
import { adviceOnJobs } from "../../output/advice.ts";
import { getJob } from "./jobs.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

export function addRemoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("remove")
    .alias("rm")
    .description(
      "remove jobs and their runs, and cancel current runs (asks for confirmation; skip with --yes)",
    )
    .argument("<job...>", "IDs of the jobs")
    .addOption(ownerOption())
    .action(run((context, ids: string[], options: OwnerOption) => remove(context, ids, options)));
}

async function remove(context: CommandContext, ids: readonly string[], owner: OwnerOption): Promise<void> {
  await confirmRemoval(context, {
    question: `Remove ${ids.join(", ")} with all recorded runs?`,
    loss: "removing a job also removes its runs",
    checkTarget: async () => {
      for (const id of ids) await getJob(context, id, owner);
    },
  });
  await forEachName(context, ids, {
    call: async (id) => {
      warnIfManaged(context, await getJob(context, id, owner));
      return context.call(calls.removeSchedule, jobRef(id, owner));
    },
    text: ({ id }) => `Removed ${id}`,
    advice: adviceOnJobs,
  });
}
