/** The commands and options of `svc`. */
import { Command, Help, InvalidArgumentError, Option } from "commander";
import { addApiCommand } from "./commands/api.ts";
import { addAppCommand } from "./commands/app.ts";
import { addLifecycleCommands } from "./commands/app-lifecycle.ts";
import { addLogsCommand } from "./commands/app-logs.ts";
import { addAuditCommand } from "./commands/audit.ts";
import { addBackupCommand } from "./commands/backup/backup.ts";
import { addCompletionCommand } from "./commands/completion.ts";
import { addCredentialCommand } from "./commands/credential.ts";
import { addDaemonCommand } from "./commands/daemon.ts";
import { addDialStdioCommand } from "./commands/dial-stdio.ts";
import { addDiskCommand } from "./commands/disk.ts";
import { addDoctorCommand } from "./commands/doctor.ts";
import { addDockerCommand } from "./commands/docker/docker.ts";
import { addFileCommand } from "./commands/file/file.ts";
import { addHostCommand } from "./commands/host.ts";
import { addInstallCommand } from "./commands/install.ts";
import { addKillCommand } from "./commands/kill.ts";
import { addEventsCommand } from "./commands/events.ts";
import { addListeningCommand } from "./commands/listening.ts";
import { addLsCommand } from "./commands/ls.ts";
import { addNodeCommand } from "./commands/node.ts";
import { addPackageCommand } from "./commands/package.ts";
import { addPortsCommand } from "./commands/ports.ts";
import { addRebootCommand } from "./commands/reboot.ts";
import { addOutdatedCommand } from "./commands/outdated.ts";
import { addSearchCommand } from "./commands/search.ts";
import { addSetupCommand } from "./commands/setup.ts";
import { addScheduleCommand } from "./commands/schedule/schedule.ts";
import { addSourceCommand } from "./commands/source.ts";
import { addStacksCommand } from "./commands/stacks.ts";
import { addStatsCommand } from "./commands/stats.ts";
import { addStatusCommand } from "./commands/status.ts";
import { addTokenCommand } from "./commands/token.ts";
import { addTopCommand } from "./commands/top.ts";
import { addUpgradeCommand } from "./commands/upgrade.ts";
import { addWebCommand } from "./commands/web.ts";
import type { GlobalOptions } from "./context.ts";
import { exitCodeHelp } from "./exit-codes.ts";
import { whereHelpIs } from "./failure.ts";

import type { CliHost } from "./host.ts";
import type { RunCommand, RunDaemon } from "./run-command.ts";

type AddCommand = (program: Command, run: RunCommand, runDaemon: RunDaemon) => void;

/** By their headings in the help, in its order. */
const commandGroups: Readonly<Record<string, Readonly<Record<string, AddCommand>>>> = {
  "Apps:": {
    ls: addLsCommand,
    search: addSearchCommand,
    install: addInstallCommand,
    outdated: addOutdatedCommand,
    upgrade: addUpgradeCommand,
    app: addAppCommand,
    backup: addBackupCommand,
    schedule: addScheduleCommand,
    stats: addStatsCommand,
    disk: addDiskCommand,
    ports: addPortsCommand,
    stacks: addStacksCommand,
  },
  "Packages:": {
    source: addSourceCommand,
    credential: addCredentialCommand,
    package: addPackageCommand,
  },
  "This machine:": {
    host: addHostCommand,
    top: addTopCommand,
    listening: addListeningCommand,
    events: addEventsCommand,
    docker: addDockerCommand,
    file: addFileCommand,
    kill: addKillCommand,
    reboot: addRebootCommand,
  },
  "The daemon:": {
    status: addStatusCommand,
    web: addWebCommand,
    token: addTokenCommand,
    audit: addAuditCommand,
    node: addNodeCommand,
    api: addApiCommand,
    completion: addCompletionCommand,
    setup: addSetupCommand,
    doctor: addDoctorCommand,
    daemon: addDaemonCommand,
    "dial-stdio": addDialStdioCommand,
  },
};

/** Short forms of `svc app …`, which no list shows. */
const hidden = { hidden: true };
const shortForms: Readonly<Record<string, AddCommand>> = {
  start: addShortLifecycle,
  stop: addShortLifecycle,
  restart: addShortLifecycle,
  logs: (program, run) => addLogsCommand(program, run, hidden),
};

function addShortLifecycle(program: Command, run: RunCommand): void {
  addLifecycleCommands(program, run, hidden);
}

/** A line that begins with a command's name needs that command alone, which saves a fifth of a short command's time. */
function addCommands(program: Command, name: string, run: RunCommand, runDaemon: RunDaemon): void {
  const groups = [...Object.entries(commandGroups), ["", shortForms] as const];
  const wanted = groups.find(([, commands]) => Object.hasOwn(commands, name))?.[1][name];
  if (wanted !== undefined) {
    wanted(program, run, runDaemon);
    return;
  }
  for (const [heading, commands] of groups) {
    program.commandsGroup(heading);
    for (const addCommand of new Set(Object.values(commands))) addCommand(program, run, runDaemon);
  }
}

export function createProgram(host: CliHost, run: RunCommand, runDaemon: RunDaemon): Command {
  const program = new Command("svc")
    .description("Runs the software on this machine.")
    .version(host.version, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .enablePositionalOptions()
    .exitOverride()
    .configureHelp({ formatHelp: formatCommandsFirst })
    .commandsGroup("Help:")
    .helpCommand("help [command]", "show the help of a command, or a page of the guide")
    .configureOutput({
      writeOut: (text) => void host.stdout.write(text),
      writeErr: (text) => {
        if (!asksForJson(host.args)) host.stderr.write(text);
      },
      getOutHelpWidth: () => host.stdout.columns ?? 80,
      getErrHelpWidth: () => host.stderr.columns ?? 80,
      outputError: (text, write) => write(text.replace(/^error: /, "svc: ")),
    });
  addCommands(program, host.args[0] ?? "", run, runDaemon);
  addGlobalOptions(program);
  nameHelp(program);
  program.addHelpText("after", `${exitCodeHelp}\nsvc help topics lists the pages of the guide.`);
  return program;
}

/** Of the options of every command. */
export const globalGroup = "Global options:";

/** Commander's help, with what a newcomer looks for first: the commands, then the options, and last those that all have. */
function formatCommandsFirst(command: Command, help: Help): string {
  const sections = Help.prototype.formatHelp.call(help, command, help).trimEnd().split("\n\n");
  const last = ["Options:", globalGroup];
  const place = (section: string): number => last.indexOf(section.split("\n", 1).join(""));
  return `${sections.toSorted((one, other) => place(one) - place(other)).join("\n\n")}\n`;
}

/**
 * On every command, so that they may stand before or after its name, and a command can have a `--version` of its own. One that
 * means something else by `--timeout` takes the global one before its name only.
 */
function addGlobalOptions(command: Command): void {
  const options = [
    new Option("--socket <path>", "the daemon's socket (default: the first that exists)").argParser(
      parsePath,
    ),
    new Option(
      "-H, --host <address>",
      "a daemon elsewhere: ssh://[user@]host[:port] or https://host[:port]",
    ).argParser(parseText),
    new Option("-N, --node <name>", "a daemon that svc node add has named; local: this machine").argParser(
      parseText,
    ),
    new Option("--json", "print JSON, in the shape of the REST API"),
    new Option(
      "--columns <names>",
      "of a table these columns alone, in this order: id,state (default: all, on a narrow terminal those that fit)",
    ).argParser(parseNames),
    new Option("-q, --quiet", "of a table the first column alone, without titles"),
    new Option("--timeout <seconds>", "give up after this time").argParser(parseSeconds),
    new Option("--no-color", "no colours; so do NO_COLOR=1 and a pipe"),
    new Option("-y, --yes", "do not ask before something is destroyed"),
  ];
  for (const option of options) {
    if (command.options.some(({ long }) => long === option.long)) continue;
    command.addOption(option.helpGroup(globalGroup));
  }
  for (const child of command.commands) addGlobalOptions(child);
}

/** What is wrong with a line of a command is followed by where its help is. */
function nameHelp(command: Command): void {
  command.showHelpAfterError(whereHelpIs(lineOf(command)));
  for (const child of command.commands) nameHelp(child);
}

/** How a command is called: `svc app logs`. */
export function lineOf(command: Command): string {
  return command.parent === null ? command.name() : `${lineOf(command.parent)} ${command.name()}`;
}

/** An empty one is what a script passes whose variable is not set. */
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

/** The options that stand anywhere on the line; the one nearest to the end counts. */
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

/** The id that the command line names first, for the next step that an error suggests. */
export function namedApp(command: Command): string | undefined {
  const at = command.registeredArguments.findIndex((argument) => argument.name() === "id");
  const value: unknown = command.processedArgs[at];
  const first: unknown = Array.isArray(value) ? value[0] : value;
  return typeof first === "string" ? first : undefined;
}

const isCalled = (command: Command, word: string): boolean =>
  [command.name(), ...command.aliases()].includes(word);

/** What people type who know other tools. */
const otherNames: Readonly<Record<string, string>> = {
  config: "app settings",
  cron: "schedule",
  delete: "app remove",
  exec: "app shell",
  ps: "ls",
  uninstall: "app remove",
  update: "upgrade",
};

/** What is right with a command that belongs to another: `svc info` is `svc app info`. Commander guesses by letters alone. */
export function suggestion(program: Command, word = ""): string | undefined {
  if (program.commands.some((command) => isCalled(command, word))) return undefined;
  if (Object.hasOwn(otherNames, word)) return `It is: svc ${otherNames[word] ?? ""}`;
  const known = program.commands.flatMap((group) =>
    group.commands.filter((command) => isCalled(command, word)),
  );
  const ofApps = known.find(({ parent }) => parent?.name() === "app");
  const lines = (ofApps === undefined ? known : [ofApps]).map(lineOf);
  return lines.length === 0 ? undefined : `It is: ${lines.join(", or ")}`;
}

/** Where what `svc status ID` was meant to show is to be found. Once the command line was parsed. */
export function statusOfApp(program: Command): string | undefined {
  const id = program.commands.find((command) => isCalled(command, "status"))?.args[0];
  return id === undefined ? undefined : `How an app is: svc app info ${id}`;
}

/** Whether `--json` stands on a command line, which nothing has understood when it is wrong. */
export function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return args.slice(0, end < 0 ? args.length : end).includes("--json");
}

/**
 * `svc help nope` as `svc nope`, for Commander to say what is wrong: of the first it shows the help of all. And `svc help app start`
 * as `svc app help start`: it looks at one word only.
 */
export function withHelpAtItsPlace(program: Command, args: readonly string[]): readonly string[] {
  const find = (parent: Command, name: string) => parent.commands.find((command) => isCalled(command, name));
  let parent = program;
  for (const [index, word] of args.entries()) {
    if (word.startsWith("-")) continue;
    if (word === "help" && parent.commands.length > 0) {
      const isWord = (each: string): boolean => !each.startsWith("-");
      const at = args.findIndex((each, place) => place > index && isWord(each));
      const topic = args[at];
      if (topic === undefined || topic === "help") return args;
      const about = find(parent, topic);
      if (about === undefined) return args.toSpliced(index, 1);
      if (about.commands.length === 0 || !args.slice(at + 1).some(isWord)) return args;
      return withHelpAtItsPlace(program, args.toSpliced(at + 1, 0, "help").toSpliced(index, 1));
    }
    const child = find(parent, word);
    if (child === undefined) return args;
    parent = child;
  }
  return args;
}
