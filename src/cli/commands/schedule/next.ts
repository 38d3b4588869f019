/** `svc schedule next`: shows when a trigger would fire, without creating a job. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import { parseCount, triggerForms } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { firingColumns, isEvent } from "../../output/schedule-table.ts";
import { calls } from "../../client/calls.ts";

interface NextOptions {
  readonly utc?: boolean;
  readonly timeZone?: string;
  readonly count?: number;
}

export function addNextCommand(parent: Command, run: RunCommand): void {
  parent
    .command("next")
    .description("show when a trigger would fire")
    .argument("<trigger>", triggerForms)
    .option("--utc", "read the trigger in UTC")
    .option("--time-zone <name>", "read the trigger in this time zone, such as Europe/Berlin")
    .option("-n, --count <firings>", "number of firings, at most 100 (default: 5)", parseCount(1, 100))
    .addHelpText("after", "\nExample:\n  svc schedule next '30 2 * * *' --time-zone Europe/Berlin -n 3\n")
    .action(run((context, trigger: string, options: NextOptions) => preview(context, trigger, options)));
}

async function preview(
  context: CommandContext,
  trigger: string,
  { utc = false, timeZone = "", count }: NextOptions,
): Promise<void> {
  if (utc && timeZone !== "") throw new UsageError("pass either --utc or --time-zone");
  const answer = await context.call(calls.previewSchedule, {
    trigger,
    utc,
    time_zone: timeZone,
    ...(count !== undefined && { count }),
  });
  if (context.json) return context.printJson(answer);
  const { firings, time_zone: zone } = answer;
  if (firings.length === 0) {
    const when = isEvent(trigger)
      ? "fires on the event, not at fixed times"
      : "does not fire within nine years";
    context.note(`"${trigger}" ${when}.`);
    return;
  }
  await context.printTable(firingColumns(firings, context.host.now()), firings);
  context.note(`The trigger is read in ${zone}.`);
}
