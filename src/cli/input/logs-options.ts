/** Options that `svc logs` and `svc docker logs` share. */
import { InvalidArgumentError, Option, type Command } from "commander";
import { defaultTail, maxTail } from "../logs/logs.ts";
import { parseCount, parseMoment } from "./option-values.ts";

/** @param end when following ends */
export function addLogsOptions(command: Command, end: string): Command {
  return command
    .option(
      "-n, --tail <lines>",
      `show the last N lines, at most 100000 (default: ${defaultTail}, or all with --since)`,
      parseTail,
    )
    .addOption(
      new Option("--since <when>", "show lines since this time: an age such as 10m, or a time").argParser(
        parseMoment,
      ),
    )
    .addOption(
      new Option("--until <when>", "show only lines until this time: an age such as 10m, or a time")
        .argParser(parseMoment)
        .conflicts("follow"),
    )
    .option(
      "--grep <regexp>",
      "show only matching lines; ignores case unless the expression has a capital letter",
      parsePattern,
    )
    .option("-f, --follow", `print new lines, until ${end}`)
    .option("-t, --timestamps", "show the time of each line")
    .addHelpText(
      "after",
      "\nOn a terminal, control characters in a log are shown as \\xNN. A pipe or a file gets the lines unchanged.\n",
    );
}

/** Docker's `all` is the most that a request returns. */
function parseTail(text: string): number {
  return text === "all" ? maxTail : parseCount(0, maxTail)(text);
}

function parsePattern(text: string): RegExp {
  try {
    return new RegExp(text, /[A-Z]/.test(text) ? "u" : "iu");
  } catch (error) {
    throw new InvalidArgumentError(`It must be a regular expression: ${(error as Error).message}.`);
  }
}
