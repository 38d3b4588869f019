/** `svc logs`: the end of a log, and new lines with `--follow`. */
import type { Command } from "commander";
import { chosenIds, type AllOption } from "../for-each.ts";
import { showAppLogs } from "../logs/app-logs.ts";
import { examples } from "../examples.ts";
import type { LogsOptions } from "../logs/logs.ts";
import { addLogsOptions } from "../input/logs-options.ts";
import type { RunCommand } from "../run-command.ts";

export function addLogsCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("logs")
    .description("show the last lines of the logs of apps")
    .argument("[id...]", "the apps; lines of several apps begin with their ID")
    .option("--all", "show the logs of all apps");
  addLogsOptions(command, "Ctrl-C")
    .addHelpText(
      "after",
      examples(
        "svc logs hello --follow",
        "svc logs hello -n 1000 --timestamps",
        "svc logs hello --grep error --since 1h",
        "svc logs hello blog --follow",
        "svc logs --all --grep error --since 1h",
      ),
    )
    .action(
      run(async (context, ids: string[], options: LogsOptions & AllOption) =>
        showAppLogs(context, await chosenIds(context, ids, options), options),
      ),
    );
}
