/**
 * What is asked most often, answered without the parts that only other commands need: Commander and the making of every
 * command take longer than such a command itself.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { CommandTree } from "./command-tree.ts";
import { exitCodes } from "./exit-codes.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./transport/client.ts";

export interface FirstStage {
  /** Where a bundle keeps what it knows about its commands; undefined for the sources, which ask Commander. */
  readonly builtDir: string | undefined;
  readonly openInProcess: (host: CliHost) => Promise<Client>;
}

/** The help of `svc`, as Commander wrote it. */
export interface BuiltHelp {
  /** For 80 columns, which is what a pipe gets. */
  readonly narrow: string;
  /** Where no line is broken. */
  readonly wide: string;
}

/** Files that a bundle has beside itself. */
export const builtFiles = { help: "help.json", commands: "commands.json" } as const;

/** @returns the exit code; undefined: the whole command line has to read this line */
export async function runFirstStage(host: CliHost, stage: FirstStage): Promise<number | undefined> {
  const { args } = host;
  const [first, second] = args;
  if (first === "__complete") return completeLine(host, stage, args.slice(1));
  if (args.length === 1 && (first === "--help" || first === "-h" || first === "help"))
    return help(host, stage);
  if (args.length === 1 && (first === "--version" || first === "-V")) return print(host, `${host.version}\n`);
  if (args.length === 2 && first === "completion" && second !== undefined) {
    const { completionScripts } = await import("./completion-scripts.ts");
    const script = Object.hasOwn(completionScripts, second)
      ? completionScripts[second as keyof typeof completionScripts]
      : undefined;
    return script === undefined ? undefined : print(host, script);
  }
  const { runQuickLine } = await import("./quick.ts");
  return runQuickLine(host, stage.openInProcess);
}

function help(host: CliHost, { builtDir }: FirstStage): number | undefined {
  const built = readBuilt(builtDir, builtFiles.help) as BuiltHelp | undefined;
  if (built === undefined) return undefined;
  const columns = host.stdout.columns ?? 80;
  if (columns === 80) return print(host, built.narrow);
  const widest = Math.max(...built.wide.split("\n").map((line) => line.length));
  return columns > widest ? print(host, built.wide) : undefined;
}

async function completeLine(
  host: CliHost,
  { builtDir }: FirstStage,
  words: readonly string[],
): Promise<number | undefined> {
  const tree = readBuilt(builtDir, builtFiles.commands) as CommandTree | undefined;
  if (tree === undefined) return undefined;
  const { complete } = await import("./complete.ts");
  await complete(host, tree, words);
  return exitCodes.ok;
}

function readBuilt(dir: string | undefined, file: string): unknown {
  if (dir === undefined) return undefined;
  return JSON.parse(readFileSync(join(dir, file), "utf8")) as unknown;
}

function print(host: CliHost, text: string): number {
  host.stdout.write(text);
  return exitCodes.ok;
}
