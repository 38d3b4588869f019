/** What a bundle keeps of its commands, so that help and completion need not make them. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { treeOf, type CommandTree } from "../cli/command-tree.ts";
import { builtFiles, type BuiltHelp } from "../cli/first-stage.ts";
import { createProgram } from "../cli/program.ts";
import { manualOf, type Manual } from "./manual.ts";

export async function writeCommandFiles(dir: string): Promise<void> {
  const help: BuiltHelp = { narrow: helpFor(80), wide: helpFor(Infinity) };
  await writeFile(join(dir, builtFiles.help), JSON.stringify(help));
  await writeFile(join(dir, builtFiles.commands), JSON.stringify(commandTree()));
}

export function commandTree(): CommandTree {
  return treeOf(programFor(80, ignore));
}

/** What the help says of them. */
export function commandManual(): Manual {
  return manualOf(programFor(80, ignore));
}

function helpFor(columns: number): string {
  let text = "";
  programFor(columns, (part) => (text += part)).outputHelp();
  return text;
}

/** The whole program, on a terminal of so many columns. */
function programFor(columns: number, write: (text: string) => unknown): Command {
  const output = { columns, write };
  const host = { args: [], version: "", stdout: output, stderr: output };
  return createProgram(
    host as never,
    () => () => Promise.resolve(),
    () => Promise.resolve(),
  );
}

const ignore = (): void => undefined;
