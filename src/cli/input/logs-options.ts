/** Options that `svc app logs` and `svc docker logs` share. */
import { Option, type Command } from "commander";
import { defaultTail } from "../logs/logs.ts";
import { parseCount, parseMoment } from "./option-values.ts";

/** @param end when following ends */
export function addLogsOptions(command: Command, end: string): Command {
  return command
    .option(
      "-n, --tail <lines>",
      "show the last N lines, at most 100000",
      parseCount(0, 100_000),
      defaultTail,
    )
    .addOption(
      new Option("--since <when>", "show all lines since this time instead: an age such as 10m, or a time")
        .argParser(parseMoment)
        .conflicts("tail"),
    )
    .option("-f, --follow", `print new lines, until ${end}`)
    .option("-t, --timestamps", "show the time of each line")
    .addHelpText(
      "after",
      "\nOn a terminal, control characters in a log are shown as \\xNN. A pipe or a file gets the lines unchanged.\n",
    );
}
