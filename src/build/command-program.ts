/** The commands as data, for the manual and the reference. */
import { treeOf, type CommandTree } from "../cli/completion/command-tree.ts";
import { createProgram } from "../cli/program.ts";
import { manualOf, type Manual } from "./manual.ts";
import type { Command } from "commander";

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
