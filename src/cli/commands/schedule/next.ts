/** `svc schedule next`: tries a trigger without a job. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { firingColumns, isEvent } from "../../render/schedule-table.ts";
import { calls } from "../../transport/calls.ts";

interface NextOptions {
  readonly utc?: boolean;
  readonly timeZone?: string;
  readonly count?: number;
}

export function addNextCommand(parent: Command, run: RunCommand): void {
  parent
    .command("next")
    .description("show when a trigger would fire")
    .argument("<trigger>", "hourly, daily@HH:MM, HH:MM, or five cron fields in one quoted argument")
    .option("--utc", "read it in UTC")
    .option("--time-zone <name>", "read it in this time zone, such as Europe/Berlin")
    .option("-n, --count <firings>", "how many, at most 100 (default: 5)", parseCount(1, 100))
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
      ? "fires whenever that happens, at no set time"
      : "does not fire within a year";
    context.note(`"${trigger}" ${when}.`);
    return;
  }
  await context.printTable(firingColumns(firings, context.host.now()), firings);
  context.note(`The trigger is read in ${zone}.`);
}
