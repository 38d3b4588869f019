/** How `svc app logs` and `svc docker logs` are asked for lines. */
import { Option, type Command } from "commander";
import { defaultTail } from "./logs.ts";
import { parseCount, parseMoment } from "./option-values.ts";

/** @param end when following ends */
export function addLogsOptions(command: Command, end: string): Command {
  return command
    .option("-n, --tail <lines>", "how many lines, at most 100000", parseCount(0, 100_000), defaultTail)
    .addOption(
      new Option("--since <when>", "all lines from then on instead: how long ago, such as 10m, or a time")
        .argParser(parseMoment)
        .conflicts("tail"),
    )
    .option("-f, --follow", `go on with every new line, until ${end}`)
    .option("-t, --timestamps", "begin each line with its time")
    .addHelpText(
      "after",
      "\nOn a terminal, control characters in a log are shown as \\xNN. A pipe or a file gets the lines as they are.\n",
    );
}
