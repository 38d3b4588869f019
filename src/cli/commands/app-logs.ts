/** `svc app logs`: the end of a log, and new lines with `--follow`. */
import type { Command, CommandOptions } from "commander";
import { showAppLogs } from "../logs/app-logs.ts";
import { examples } from "../examples.ts";
import type { LogsOptions } from "../logs/logs.ts";
import { addLogsOptions } from "../input/logs-options.ts";
import type { RunCommand } from "../run-command.ts";

/** @param options `hidden` for a command that help does not list */
export function addLogsCommand(parent: Command, run: RunCommand, options: CommandOptions = {}): void {
  const command = parent
    .command("logs", options)
    .description("show the last lines of an app's log")
    .argument("<id>", "the app");
  addLogsOptions(command, "Ctrl-C")
    .addHelpText(
      "after",
      examples(
        "svc app logs hello --follow",
        "svc app logs hello -n 1000 --timestamps",
        "svc app logs hello | grep -i error",
      ),
    )
    .action(run((context, id: string, logsOptions: LogsOptions) => showAppLogs(context, id, logsOptions)));
}
