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
  isEndless,
  helpTopicOf,
  lineOf,
  namedApp,
  withHelpAtItsPlace,
} from "./program.ts";
import { runAction } from "./run-action.ts";
import type { CliDependencies, RunCommand } from "./run-command.ts";
import { formatJson } from "./output/escape.ts";
import { usageMessage } from "./output/usage-message.ts";
import { didYouMean, findUnknownWord, isBackupOfApp, suggestion, withCreate } from "./suggestion.ts";

/** Errors about a command that does not exist: a group with a default command reports it as an excess argument. */
const unknownCommandCodes = ["commander.unknownCommand", "commander.excessArguments"];

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
        {
          ...{ options: globalOptions(command), line: lineOf(command), app: namedApp(command) },
          ...{ isEndless: isEndless(command), openInProcess },
        },
        (context) => action(context, ...(args as never)),
      );
    };
  if (host.args[0] === "__complete") {
    const { complete } = await import("./completion/complete.ts");
    const words = host.args.slice(1);
    const program = await createProgram(host, run, dependencies.runDaemon, words.slice(0, -1));
    host.stdout.write(await complete(host, treeOf(program), words));
    return exitCodes.ok;
  }
  const topic = helpTopicOf(host.args);
  if (topic !== undefined) {
    const { showTopic } = await import("./help-topics.ts");
    const shown = await showTopic(host, topic);
    if (shown !== undefined) return shown;
  }
  const program = await createProgram(host, run, dependencies.runDaemon, host.args);
  let args = isShortVersion(host.args) ? ["--version"] : withHelpAtItsPlace(program, host.args);
  let hint: string | undefined;
  try {
    // Throws for a wrong option value, after printing where the command's help is.
    const unknown = findUnknownWord(program, args);
    if (unknown !== undefined && isBackupOfApp(unknown)) args = withCreate(args, unknown.word);
    else if (unknown !== undefined) {
      hint = (await topicSuggestion(host, topic)) ?? suggestion(program, unknown);
      if (hint !== undefined)
        for (const each of [unknown.group, ...unknown.group.commands]) each.showHelpAfterError(false);
      unknown.group.showSuggestionAfterError(false);
    }
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    const shown =
      error instanceof CommanderError && unknownCommandCodes.includes(error.code) ? hint : undefined;
    return (asksForJson(args) ? usageFailureJson : usageFailure)(host, error, shown);
  }
  return exitCode;
}

/** As the first argument, `-v` prints the version, as docker does. */
function isShortVersion(args: readonly string[]): boolean {
  return args[0] === "-v";
}

/** @returns undefined if no topic has a similar name */
async function topicSuggestion(host: CliHost, name: string | undefined): Promise<string | undefined> {
  if (name === undefined) return undefined;
  const { nearTopics } = await import("./help-topics.ts");
  return didYouMean((await nearTopics(host, name)).map((near) => `svc help ${near}`));
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
  const sentence = usageMessage(message).replace("\n", "; ");
  return hint === undefined ? sentence : `${sentence}; ${hint}`;
}
