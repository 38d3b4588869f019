/** The command line: arguments in, exit code out. */
import { CommanderError, type Command } from "commander";
import { treeOf } from "./completion/command-tree.ts";
import { exitCodes } from "./output/exit-codes.ts";
import { describeFailure, failureJson, UsageError } from "./output/failure.ts";
import type { CliHost } from "./host.ts";
import {
  asksForJson,
  createProgram,
  globalOptions,
  lineOf,
  namedApp,
  withHelpAtItsPlace,
} from "./program.ts";
import { runAction } from "./run-action.ts";
import type { CliDependencies, RunCommand } from "./run-command.ts";
import { formatJson } from "./output/json.ts";
import { findUnknownWord, isBackupOfApp, readingWords, suggestion, withCreate } from "./suggestion.ts";

const unknownCommand = "commander.unknownCommand";

/** @returns the exit code; never throws */
export async function runCli(host: CliHost, dependencies: CliDependencies): Promise<number> {
  let exitCode: number = exitCodes.ok;
  const run: RunCommand =
    (action) =>
    async (...args) => {
      const command = args.pop() as Command;
      const { openInProcess } = dependencies;
      exitCode = await runAction(
        host,
        { options: globalOptions(command), line: lineOf(command), app: namedApp(command), openInProcess },
        (context) => action(context, ...(args as never)),
      );
    };
  const [first, topic, ...others] = host.args;
  if (first === "__complete") {
    const { complete } = await import("./completion/complete.ts");
    const words = host.args.slice(1);
    const program = await createProgram(host, run, dependencies.runDaemon, words.slice(0, -1));
    host.stdout.write(await complete(host, treeOf(program), words));
    return exitCodes.ok;
  }
  if (first === "help" && topic !== undefined && others.length === 0) {
    const { showTopic } = await import("./help-topics.ts");
    const shown = await showTopic(host, topic);
    if (shown !== undefined) return shown;
  }
  const program = await createProgram(host, run, dependencies.runDaemon, host.args);
  let args = withHelpAtItsPlace(program, host.args);
  let hint: string | undefined;
  try {
    // Throws for a wrong option value, after printing where the command's help is.
    const unknown = findUnknownWord(program, args);
    if (unknown !== undefined && isBackupOfApp(unknown)) args = withCreate(args, unknown.word);
    else if (unknown !== undefined) {
      hint = suggestion(program, unknown);
      if (hint !== undefined) unknown.group.showHelpAfterError(false);
      if (hint !== undefined || readingWords.has(unknown.word)) unknown.group.showSuggestionAfterError(false);
    }
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    const shown = error instanceof CommanderError && error.code === unknownCommand ? hint : undefined;
    return (asksForJson(args) ? usageFailureJson : usageFailure)(host, error, shown);
  }
  return exitCode;
}

/** Commander has already printed the error, or the help. */
function usageFailure(host: CliHost, error: unknown, hint: string | undefined): number {
  if (!(error instanceof CommanderError)) {
    host.stderr.write(`svc: ${describeFailure(error).message}\n`);
    return exitCodes.failed;
  }
  if (error.exitCode === 0) return exitCodes.ok;
  if (hint !== undefined) host.stderr.write(`${hint}\n`);
  return exitCodes.usage;
}

/** The same with `--json`, where Commander prints nothing. */
function usageFailureJson(host: CliHost, error: unknown, hint: string | undefined): number {
  if (error instanceof CommanderError && error.exitCode === 0) return exitCodes.ok;
  const failure = error instanceof CommanderError ? new UsageError(usageSentence(error, hint)) : error;
  host.stderr.write(formatJson(failureJson(failure), 0));
  return describeFailure(failure).exitCode;
}

function usageSentence({ code, message }: CommanderError, hint: string | undefined): string {
  // Commander shows the help instead of a message.
  if (code === "commander.help") return "name a command; see them with --help";
  const sentence = message.replace(/^error: /, "").replaceAll("\n", " ");
  return hint === undefined ? sentence : `${sentence}; ${hint}`;
}
