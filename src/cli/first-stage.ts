/**
 * What is asked most often, answered without the parts that only other commands need: Commander and the making of every
 * command take longer than such a command itself.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { CommandTree } from "./command-tree.ts";
import { exitCodes } from "./exit-codes.ts";
import type { CliHost } from "./host.ts";
import type { CliDependencies } from "./run-command.ts";

export interface FirstStage extends CliDependencies {
  /** Where a bundle keeps what it knows about its commands; undefined for the sources, which ask Commander. */
  readonly builtDir: string | undefined;
  /** Writes to standard output where that is no terminal, without what a stream takes. False: it does not. */
  readonly writePlain?: ((text: string) => boolean) | undefined;
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
  if (args.length === 1 && (first === "--version" || first === "-V"))
    return print(host, stage, `${host.version}\n`);
  if (args.length === 1 && first === "__compile") {
    const { rehearse, rehearseDaemon, rehearsePackages } = await import("./rehearsal.ts");
    await rehearse(host, (rehearsed) => runFirstStage(rehearsed, { ...stage, writePlain: undefined }));
    if (stage.builtDir !== undefined)
      await rehearsePackages(
        await host.program.settingsThread(),
        join(stage.builtDir, "examples/hello/svc.yaml"),
      );
    // Where none can run it is compiled as far as it came.
    await rehearseDaemon(stage.runDaemon).catch(() => undefined);
    return exitCodes.ok;
  }
  if (args.length === 2 && first === "completion" && second !== undefined) {
    const { completionScripts } = await import("./completion-scripts.ts");
    const script = Object.hasOwn(completionScripts, second)
      ? completionScripts[second as keyof typeof completionScripts]
      : undefined;
    return script === undefined ? undefined : print(host, stage, script);
  }
  const { runQuickLine } = await import("./quick.ts");
  return runQuickLine(host, stage);
}

function help(host: CliHost, stage: FirstStage): number | undefined {
  const built = readBuilt(stage.builtDir, builtFiles.help) as BuiltHelp | undefined;
  if (built === undefined) return undefined;
  if (stage.writePlain?.(built.narrow) === true) return exitCodes.ok;
  const columns = host.stdout.columns ?? 80;
  if (columns === 80) return print(host, stage, built.narrow);
  const widest = Math.max(...built.wide.split("\n").map((line) => line.length));
  return columns > widest ? print(host, stage, built.wide) : undefined;
}

async function completeLine(
  host: CliHost,
  stage: FirstStage,
  words: readonly string[],
): Promise<number | undefined> {
  const tree = readBuilt(stage.builtDir, builtFiles.commands) as CommandTree | undefined;
  if (tree === undefined) return undefined;
  const { complete } = await import("./complete.ts");
  return print(host, stage, await complete(host, tree, words));
}

function readBuilt(dir: string | undefined, file: string): unknown {
  if (dir === undefined) return undefined;
  return JSON.parse(readFileSync(join(dir, file), "utf8")) as unknown;
}

function print(host: CliHost, { writePlain }: FirstStage, text: string): number {
  if (writePlain?.(text) !== true) host.stdout.write(text);
  return exitCodes.ok;
}
