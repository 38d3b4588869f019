/** The help of the commands as data for the man pages and the reference. Commander is the source of all of them. */
import type { Command, Help } from "commander";
import { globalGroup, createProgram } from "../cli/program.ts";
import { treeOf, type CommandTree } from "../cli/completion/command-tree.ts";

export interface Manual {
  readonly description: string;
  /** Options of every command. */
  readonly options: readonly Entry[];
  /** Commands that do something, and groups with notes, in the order of the help. */
  readonly commands: readonly CommandEntry[];
}

export interface CommandEntry {
  /** `svc app logs` */
  readonly name: string;
  /** Full alternative names. */
  readonly aliases: readonly string[];
  /** `svc app logs <id>` */
  readonly usage: string;
  readonly description: string;
  readonly args: readonly Entry[];
  /** Its own options, without those of every command. */
  readonly options: readonly Entry[];
  /** Further parts of its help. */
  readonly notes: readonly Note[];
  /** Lines for a shell. */
  readonly examples: readonly string[];
}

export interface Entry {
  /** `-n, --tail <lines>` */
  readonly term: string;
  /** Description, with choices and the default. */
  readonly description: string;
}

export interface Note {
  readonly text: string;
  /** Whether line breaks must be kept. */
  readonly isFixed: boolean;
}

function manualOf(program: Command): Manual {
  const help = program.createHelp();
  const options = help.visibleOptions(program).map((option) => optionEntry(help, option));
  return { description: program.description(), options, commands: entriesOf(program, help) };
}

function entriesOf(parent: Command, help: Help): CommandEntry[] {
  return help
    .visibleCommands(parent)
    .filter((command) => command.name() !== "help" && !isLongForm(command))
    .flatMap((command) => {
      const entry = commandEntry(command, help);
      const isShown =
        command.commands.length === 0 ||
        [entry.options, entry.notes, entry.examples].some((part) => part.length > 0);
      return [...(isShown ? [entry] : []), ...entriesOf(command, help)];
    });
}

/** `svc app start` is the same as `svc start`, which the manual describes. */
function isLongForm(command: Command): boolean {
  const { parent } = command;
  const top = parent?.name() === "app" ? (parent.parent?.commands ?? []) : [];
  return top.some((each) => each.name() === command.name());
}

function commandEntry(command: Command, help: Help): CommandEntry {
  const path: string[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) path.unshift(at.name());
  const name = path.join(" ");
  const words = command.usage().replace(/^\[options\] ?/, "");
  return {
    name,
    aliases: command.aliases(),
    usage: `${name} ${words}`.trim(),
    description: help.commandDescription(command),
    args: help.visibleArguments(command).map((argument) => ({
      term: help.argumentTerm(argument),
      description: help.argumentDescription(argument),
    })),
    options: help
      .visibleOptions(command)
      .filter(({ helpGroupHeading, long }) => helpGroupHeading !== globalGroup && long !== "--help")
      .map((option) => optionEntry(help, option)),
    ...partsOf(textAfter(command)),
  };
}

function optionEntry(help: Help, option: Parameters<Help["optionTerm"]>[0]): Entry {
  return { term: help.optionTerm(option), description: help.optionDescription(option) };
}

/** Text added by `addHelpText("after")`. */
function textAfter(command: Command): string {
  let printed = "";
  command.configureOutput({ writeOut: (part) => (printed += part) });
  command.outputHelp();
  return printed.slice(command.helpInformation().length);
}

function partsOf(text: string): Pick<CommandEntry, "notes" | "examples"> {
  const notes: Note[] = [];
  const examples: string[] = [];
  for (const part of text.split(/\n{2,}/)) {
    const [first = "", ...others] = part.split("\n").filter((line) => line !== "");
    const example = /^Examples?:(.*)$/.exec(first)?.[1];
    if (example !== undefined)
      examples.push(...[example, ...others].map((line) => line.trim()).filter((line) => line !== ""));
    else if (first !== "")
      notes.push({
        text: [first, ...others].join("\n"),
        isFixed: others.some((line) => line.startsWith(" ")),
      });
  }
  return { notes, examples };
}

/** The commands as data, for the manual and the reference. */
export async function commandTree(): Promise<CommandTree> {
  return treeOf(await allCommands());
}

export async function commandManual(): Promise<Manual> {
  return manualOf(await allCommands());
}

function allCommands(): Promise<Command> {
  const output = { columns: 80, write: () => undefined };
  const host = { args: [], version: "", stdout: output, stderr: output };
  return createProgram(
    host as never,
    () => () => Promise.resolve(),
    () => Promise.resolve(),
  );
}
