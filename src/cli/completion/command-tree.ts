/** The commands as data, for completion and the manual. */
import type { Command } from "commander";

export interface CommandTree {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly description: string;
  /** Works, but help does not list it. */
  readonly hidden: boolean;
  readonly options: readonly OptionEntry[];
  readonly args: readonly ArgumentEntry[];
  readonly commands: readonly CommandTree[];
}

export interface OptionEntry {
  readonly short?: string | undefined;
  readonly long?: string | undefined;
  readonly description: string;
  /** Whether the next word is the option's value. */
  readonly takesValue: boolean;
  readonly choices?: readonly string[] | undefined;
}

export interface ArgumentEntry {
  readonly name: string;
  readonly variadic: boolean;
  readonly choices?: readonly string[] | undefined;
}

export function treeOf(command: Command): CommandTree {
  const shown = new Set(command.createHelp().visibleCommands(command));
  return {
    ...entryOf(command),
    hidden: false,
    commands: command.commands.map((child) => ({ ...treeOf(child), hidden: !shown.has(child) })),
  };
}

function entryOf(command: Command): Omit<CommandTree, "hidden" | "commands"> {
  return {
    name: command.name(),
    aliases: command.aliases(),
    description: command.description(),
    options: command.options.map(({ short, long, description, required, argChoices }) => ({
      short,
      long,
      description,
      takesValue: required,
      choices: argChoices,
    })),
    args: command.registeredArguments.map((argument) => ({
      name: argument.name(),
      variadic: argument.variadic,
      choices: argument.argChoices,
    })),
  };
}
