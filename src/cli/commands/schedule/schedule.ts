/** `svc schedule …`: scheduled jobs, their runs, and a preview of triggers. */
import type { Command } from "commander";
import { runWithAdvice, adviceOnJobs } from "../../output/advice.ts";
import type { RunCommand } from "../../run-command.ts";
import { addAddCommand } from "./add.ts";
import { addCancelCommand, addRunCommand } from "./run.ts";
import { addEditCommand } from "./edit.ts";
import { addImportCommand } from "./import.ts";
import { addListCommand } from "./list.ts";
import { addNextCommand } from "./next.ts";
import { ofOwner } from "./owner-option.ts";
import { addRemoveCommand } from "./remove.ts";
import { addRunsCommand } from "./runs.ts";
import { addShowCommand } from "./show.ts";
import { addSwitchCommands } from "./switch.ts";

export function addScheduleCommand(parent: Command, run: RunCommand): void {
  const schedule = parent
    .command("schedule")
    .description("manage jobs, which run at set times or after events")
    .addHelpText("after", examples);
  const advisedRun = runWithAdvice((action) => run(ofOwner(action)), adviceOnJobs);
  for (const add of [
    addListCommand,
    addAddCommand,
    addShowCommand,
    addEditCommand,
    addRemoveCommand,
    addSwitchCommands,
    addRunCommand,
    addCancelCommand,
    addRunsCommand,
    addNextCommand,
    addImportCommand,
  ]) {
    add(schedule, advisedRun);
  }
}

const examples = `
Triggers:
  hourly, daily@HH:MM, HH:MM
  @daily, @weekly and the other nicknames of cron
  "every 15m", "every 2h"         an interval that divides an hour or a day
  "mon 03:00", "mon-fri 03:00"    on these days at that time
  "30 2 * * mon-fri"              five cron fields: minute hour day-of-month month day-of-week
  on:app.crashed                  an event of apps, backups or alerts; for one app: "on:app.crashed hello"

Examples:
  svc schedule add '*/5 * * * *' shell --app hello --command 'echo hi'
  svc schedule add 03:30 app_restart --app hello
  svc schedule list
  svc schedule run echo
  svc schedule runs echo
  svc schedule next '30 2 * * *' --time-zone Europe/Berlin
`;
