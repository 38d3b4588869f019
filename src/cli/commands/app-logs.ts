/** `svc logs`: the end of a log, and new lines with `--follow`. */
import type { Command } from "commander";
import { chosenIds, type AllOption } from "../for-each.ts";
import { showAppLogs, type AppLogsOptions } from "../logs/app-logs.ts";
import { UsageError } from "../output/failure.ts";
import { examples } from "../examples.ts";
import { addLogsOptions } from "../input/logs-options.ts";
import type { RunCommand } from "../run-command.ts";

export function addLogsCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("logs")
    .description("show the last lines of the logs of apps")
    .argument("[id...]", "the apps; lines of several apps begin with their ID")
    .option("--service <name>", "show only lines of this service of a compose project")
    .option("--all", "show the logs of all apps");
  addLogsOptions(command, "Ctrl-C")
    .addHelpText(
      "after",
      examples(
        "svc logs hello --follow",
        "svc logs hello -n 1000 --timestamps",
        "svc logs hello --grep error --since 1h",
        "svc logs hello blog --follow",
        "svc logs shop --service web",
        "svc logs --all --grep error --since 1h",
      ),
    )
    .action(
      run(async (context, ids: string[], options: AppLogsOptions & AllOption) => {
        // As tail has it.
        const lines = ids.find((id) => /^-\d+$/.test(id));
        if (lines !== undefined) throw new UsageError(`for the last lines: -n ${lines.slice(1)}`);
        return showAppLogs(context, await chosenIds(context, ids, options), options);
      }),
    );
}
