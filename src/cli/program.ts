/** The commands and options of `svc`. */
import { Command, Help, InvalidArgumentError, Option, type Argument } from "commander";
import { commandGroups, hiddenCommands, type LoadCommand } from "./command-list.ts";
import { outputFormats, type GlobalOptions } from "./context.ts";
import { dailyHelp } from "./daily-help.ts";
import { errorPrefix } from "./output/color.ts";
import { exitCodeHelp } from "./output/exit-codes.ts";
import { helpHint } from "./output/failure.ts";
import { usageMessage, type UsedArgument, type UsedCommand } from "./output/usage-message.ts";
import type { CliHost } from "./host.ts";
import type { RunCommand, RunDaemon } from "./run-command.ts";

/** Adds the commands of the line: the named one, or all if the name is not a command's. */
async function addCommands(
  program: Command,
  name: string,
  run: RunCommand,
  runDaemon: RunDaemon,
): Promise<void> {
  const load = loadOf(name);
  if (load === undefined) await addAllCommands(program, run, runDaemon);
  else (await load())(program, run, runDaemon);
}

function loadOf(name: string): LoadCommand | undefined {
  const listed = Object.values(commandGroups).flatMap((commands) => Object.entries(commands));
  const named = listed.find(([each, { aliases = [] }]) => name === each || aliases.includes(name));
  return named?.[1].load ?? Object.entries(hiddenCommands).find(([each]) => name === each)?.[1];
}

async function addAllCommands(program: Command, run: RunCommand, runDaemon: RunDaemon): Promise<void> {
  const groups = Object.entries(commandGroups).map(
    ([heading, commands]) =>
      [heading, [...new Set(Object.values(commands).map(({ load }) => load))]] as const,
  );
  for (const [heading, loads] of [...groups, ["", Object.values(hiddenCommands)] as const]) {
    program.commandsGroup(heading);
    const adds = await Promise.all(loads.map((load) => load()));
    for (const add of adds) add(program, run, runDaemon);
  }
}

/** Whether `svc NAME` is a command that help lists; works although only some commands are loaded. */
export function isCommandName(name: string): boolean {
  return !Object.hasOwn(hiddenCommands, name) && loadOf(name) !== undefined;
}

/** Adds what help and completion show of the commands, without loading their modules. */
function addSummaries(program: Command): void {
  for (const [heading, commands] of Object.entries(commandGroups)) {
    program.commandsGroup(heading);
    for (const [name, { args = "", aliases = [], summary }] of Object.entries(commands))
      program.command(`${name} ${args}`).description(summary).aliases(aliases);
  }
}

/** Indexes of the words that are neither options nor values of global options. */
function wordIndexes(args: readonly string[]): number[] {
  const options = globalOptionList();
  const takesValue = (arg = ""): boolean =>
    options.some(({ short, long, required }) => required && (arg === short || arg === long));
  return [...args.keys()].filter((at) => args[at]?.startsWith("-") === false && !takesValue(args[at - 1]));
}

function wordsOf(args: readonly string[]): string[] {
  return wordIndexes(args).map((at) => args[at] ?? "");
}

/** The first word that is not `help`; empty if there is none. */
function commandName(args: readonly string[]): string {
  return wordsOf(args).find((word) => word !== "help") ?? "";
}

/** The only word after `help`, such as `topics`; undefined for other lines. */
export function helpTopicOf(args: readonly string[]): string | undefined {
  const [first, topic, ...others] = wordsOf(args);
  return first === "help" && others.length === 0 ? topic : undefined;
}

/** @param args the line; it decides which commands are loaded: all without it, none if it names none */
export async function createProgram(
  host: CliHost,
  run: RunCommand,
  runDaemon: RunDaemon,
  args?: readonly string[],
): Promise<Command> {
  const program = new Command("svc")
    .description("Installs and runs apps on this machine.")
    .version(host.version, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .enablePositionalOptions()
    .exitOverride()
    .configureHelp({
      formatHelp: (command, help) =>
        command.parent !== null || wantsFullHelp(args) || wantsOptions(args)
          ? formatSections(command, help, { onlyGlobal: wantsOptions(args) })
          : dailyHelp,
    })
    .commandsGroup("Help:")
    .helpCommand("help [command]", "show the help of a command, or a page of the guide")
    .configureOutput({
      writeOut: (text) => void host.stdout.write(text),
      writeErr: (text) => {
        if (!asksForJson(host.args)) host.stderr.write(text);
      },
      getOutHelpWidth: () => host.stdout.columns ?? 80,
      getErrHelpWidth: () => host.stderr.columns ?? 80,
    });
  const name = args && commandName(args);
  if (name === undefined) await addAllCommands(program, run, runDaemon);
  else if (name === "") addSummaries(program);
  else await addCommands(program, name, run, runDaemon);
  addGlobalOptions(program, globalOptionList());
  explainUsage(program, host);
  program.addHelpText("after", () =>
    wantsFullHelp(args) ? `${exitCodeHelp}\nsvc help topics lists the pages of the guide.` : "",
  );
  return program;
}

/** Whether the help of `svc` itself lists all commands. */
function wantsFullHelp(args: readonly string[] | undefined): boolean {
  return args?.includes("--all") ?? true;
}

/** Whether the line is `svc help options`. */
function wantsOptions(args: readonly string[] | undefined): boolean {
  return args !== undefined && helpTopicOf(args) === optionsTopic;
}

/** Heading of the options that every command has. */
export const globalGroup = "Global options:";
/** `svc help options` shows the global options, so that the help of each command need not repeat them. */
const optionsTopic = "options";
const optionsHint = `Global options, such as --json and --yes: svc help ${optionsTopic}`;
const optionsIntroduction =
  "Usage: svc COMMAND [options]\n\nOptions of every command, before or after its name.";

/**
 * Commander's help with the sections reordered: commands, then options. The global options are at the end of the help of
 * `svc`; the help of a command names where they are.
 */
function formatSections(command: Command, help: Help, { onlyGlobal }: { onlyGlobal: boolean }): string {
  const sections = Help.prototype.formatHelp.call(help, command, help).trimEnd().split("\n\n");
  const last = ["Options:", globalGroup];
  const rank = (section: string): number => last.indexOf(section.split("\n", 1).join(""));
  const ranked = sections.toSorted((one, other) => rank(one) - rank(other));
  const global = ranked.pop() ?? "";
  if (onlyGlobal) return `${optionsIntroduction}\n\n${global}\n`;
  return `${[...ranked, command.parent === null ? global : optionsHint].join("\n\n")}\n`;
}

function globalOptionList(): readonly Option[] {
  return [
    new Option("--socket <path>", "the daemon's socket (default: the first that exists)").argParser(
      parsePath,
    ),
    new Option(
      "-H, --host <address>",
      "use a remote daemon: ssh://[user@]host[:port] or https://host[:port]",
    ).argParser(parseText),
    new Option("-N, --node <name>", "use a node added with svc node add; local: this machine").argParser(
      parseText,
    ),
    new Option("--json", "print JSON, in the shape of the REST API; the same as -o json"),
    new Option(
      "-o, --output <format>",
      "output format; wide shows all columns, and name shows only the first, as -q does",
    ).choices(outputFormats),
    new Option(
      "--format <template>",
      "print a line per entry: '{{.id}} {{.state}}', with the names of --json",
    ).argParser(parseText),
    new Option("--sort <column>", "sort a table by this column; in reverse: -COLUMN").argParser(parseText),
    new Option(
      "--columns <names>",
      "show only these columns, in this order: id,state (default: all that fit the terminal)",
    ).argParser(parseNames),
    new Option("-q, --quiet", "print only the first column, without headings"),
    new Option("--timeout <seconds>", "fail after this time").argParser(parseSeconds),
    new Option("--no-color", "no colors, as with NO_COLOR=1 or in a pipe"),
    new Option("-y, --yes", "skip confirmation prompts"),
  ].map((option) => option.helpGroup(globalGroup));
}

/**
 * Adds the global options to every command, so that they may stand before or after its name. A command may
 * define its own `--version`. If a command has its own `--timeout`, the global one must stand before the
 * command's name.
 */
function addGlobalOptions(command: Command, options: readonly Option[]): void {
  for (const option of options) {
    if (!command.options.some(({ long }) => long === option.long)) command.addOption(option);
  }
  for (const child of command.commands) addGlobalOptions(child, options);
}

/** Rewords usage errors of each command, and prints where its help is. */
function explainUsage(command: Command, host: CliHost): void {
  command.showHelpAfterError(helpHint(lineOf(command))).configureOutput({
    ...command.configureOutput(),
    outputError: (text, write) =>
      write(
        `${errorPrefix(host, !host.args.includes("--no-color"))} ${usageMessage(text, usedCommand(command, host.args))}`,
      ),
  });
  for (const child of command.commands) explainUsage(child, host);
}

function usedCommand(command: Command, words: readonly string[]): UsedCommand {
  const line = lineOf(command).replace(/^svc (?:app )?/, "");
  const isImplied = command.parent !== null && !words.some((word) => isCalled(command, word));
  return { line, isImplied, args: command.registeredArguments.map(usedArgument) };
}

function usedArgument(argument: Argument): UsedArgument {
  const { variadic, required, description, argChoices: choices } = argument;
  const name = argument.name();
  const word = variadic ? `${name}...` : name;
  return { name, form: required ? `<${word}>` : `[${word}]`, description, choices };
}

/** The full name of a command: `svc app logs`. */
export function lineOf(command: Command): string {
  return command.parent === null ? command.name() : `${lineOf(command.parent)} ${command.name()}`;
}

/** A script passes an empty path if its variable is not set. */
function parsePath(text: string): string {
  if (text === "") throw new InvalidArgumentError("It must be a path.");
  return text;
}

function parseText(text: string): string {
  if (text === "") throw new InvalidArgumentError("It must not be empty.");
  return text;
}

function parseNames(text: string): string[] {
  const names = text.split(",").map((name) => name.trim());
  if (names.includes(""))
    throw new InvalidArgumentError("It must be names of columns, with commas between them.");
  return names;
}

function parseSeconds(text: string): number {
  const seconds = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || seconds <= 0 || seconds > 86_400) {
    throw new InvalidArgumentError("It must be seconds, more than 0 and at most 86400.");
  }
  return seconds;
}

/** The global options, from anywhere on the line; the last one wins. */
export function globalOptions(command: Command): GlobalOptions {
  const chain: GlobalOptions[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) chain.unshift(globalValues(at));
  const merged = Object.assign({}, ...chain) as GlobalOptions;
  return { ...merged, color: chain.every(({ color }) => color) };
}

function globalValues(command: Command): GlobalOptions {
  const values = command.options
    .filter(({ helpGroupHeading }) => helpGroupHeading === globalGroup)
    .map((option) => option.attributeName())
    .map((name) => [name, command.getOptionValue(name)] as const)
    .filter(([, value]) => value !== undefined);
  return Object.fromEntries(values) as unknown as GlobalOptions;
}

/** The first ID on the command line, for the command that an error suggests. */
export function namedApp(command: Command): string | undefined {
  const at = command.registeredArguments.findIndex((argument) => argument.name() === "id");
  const value: unknown = command.processedArgs[at];
  const first: unknown = Array.isArray(value) ? value[0] : value;
  return typeof first === "string" ? first : undefined;
}

/** Whether the line follows or watches something until Ctrl-C. */
export function isEndless(command: Command): boolean {
  const { follow, watch }: { readonly follow?: unknown; readonly watch?: unknown } = command.opts();
  return follow === true || watch === true;
}

export const isCalled = (command: Command, word: string): boolean =>
  [command.name(), ...command.aliases()].includes(word);

/** Whether `--json` or `-o json` is among the arguments; works for lines that could not be parsed. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  const words = args.slice(0, end < 0 ? args.length : end);
  return words.some(
    (word, at) =>
      ["--json", "-ojson", "--output=json"].includes(word) ||
      (["-o", "--output"].includes(word) && words[at + 1] === "json"),
  );
}

/**
 * Rewrites `svc help nope` as `svc nope`, so that Commander reports the error instead of showing the general
 * help; and `svc help app start` as `svc app help start`, because Commander reads only one word after `help`.
 */
export function withHelpAtItsPlace(program: Command, args: readonly string[]): readonly string[] {
  const find = (parent: Command, name: string) => parent.commands.find((command) => isCalled(command, name));
  let parent = program;
  const indexes = wordIndexes(args);
  for (const [position, index] of indexes.entries()) {
    const word = args[index] ?? "";
    if (word === "help" && parent.commands.length > 0) {
      const [at = args.length, ...later] = indexes.slice(position + 1);
      const topic = args[at];
      if (topic === undefined && wantsFullHelp(args)) return args.with(index, "--help");
      if (wantsOptions(args)) return ["--help"];
      if (topic === undefined || topic === "help") return args;
      const about = find(parent, topic);
      if (about === undefined) return args.toSpliced(index, 1);
      if (about.commands.length === 0 || later.length === 0) return args;
      return withHelpAtItsPlace(program, args.toSpliced(at + 1, 0, "help").toSpliced(index, 1));
    }
    const child = find(parent, word);
    if (child === undefined) return args;
    parent = child;
  }
  return args;
}
