/** `svc schedule enable|disable`. */
import type { Command } from "commander";
import { forEachName } from "../../for-each.ts";
import type { RunCommand } from "../../run-command.ts";
import { nextRunSentence } from "../../output/schedule-table.ts";
import { adviceOnJobs } from "../../output/advice.ts";
import { ownerOption, type OwnerOption } from "./owner-option.ts";
import { changeJob } from "./write-job.ts";

const verbs = [
  { name: "enable", enabled: true, did: "Enabled", description: "enable jobs" },
  { name: "disable", enabled: false, did: "Disabled", description: "disable jobs without removing them" },
] as const;

export function addSwitchCommands(parent: Command, run: RunCommand): void {
  for (const { name, enabled, did, description } of verbs) {
    parent
      .command(name)
      .description(description)
      .argument("<job...>", "IDs of the jobs")
      .addOption(ownerOption())
      .action(
        run((context, ids: string[], options: OwnerOption) =>
          forEachName(context, ids, {
            call: (id) => changeJob(context, id, options, (job) => ({ ...job, enabled })),
            text: (job) =>
              enabled ? `${did} ${job.id}. ${nextRunSentence(job, context.host.now())}` : `${did} ${job.id}`,
            advice: adviceOnJobs,
          }),
        ),
      );
  }
}
