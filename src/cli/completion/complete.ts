/** Completions of a command line, for the scripts of `svc completion`. */
import type * as Words from "../../../gen/svc/v1/values.ts";
import type { CommandTree, OptionEntry } from "./command-tree.ts";
import type { Candidate, Kind } from "./complete-names.ts";
import type { CliHost } from "../host.ts";
import type { NodeOptions } from "../nodes/choose-node.ts";
import { escapeCell } from "../output/escape.ts";

/**
 * Returns one candidate per line, `word<TAB>description`.
 * @param words the words after `svc`; the last is being typed
 */
export async function complete(
  host: CliHost,
  program: CommandTree,
  words: readonly string[],
): Promise<string> {
  const current = words.at(-1) ?? "";
  const position = walk(program, words.slice(0, -1));
  const candidates = await candidatesAt(host, position, current);
  const fitting = candidates.filter(({ word }) => word.startsWith(current));
  return fitting.map(({ word, description }) => `${escapeCell(word)}\t${escapeCell(description)}\n`).join("");
}

interface CompletionPosition {
  readonly command: CommandTree;
  /** The group that contains the command. */
  readonly group: CommandTree;
  /** The arguments of the command so far. */
  readonly args: readonly string[];
  /** The option whose value comes next. */
  readonly option: OptionEntry | undefined;
  /** The daemon that the line names. */
  readonly target: NodeOptions;
}

function walk(program: CommandTree, words: readonly string[]): CompletionPosition {
  let command = program;
  let group = program;
  let args: string[] = [];
  let option: OptionEntry | undefined;
  let target: NodeOptions = {};
  for (const word of words) {
    if (option !== undefined) {
      const named = targetOptions[option.long ?? ""];
      if (named !== undefined) target = { ...target, [named]: word };
      option = undefined;
    } else if (word.startsWith("-")) {
      const found = command.options.find(({ short, long }) => word === short || word === long);
      if (found?.takesValue === true) option = found;
    } else {
      const child = command.commands.find((each) => each.name === word || each.aliases.includes(word));
      if (child === undefined) args.push(word);
      else [group, command, args] = [command, child, []];
    }
  }
  return { command, group, args, option, target };
}

async function candidatesAt(
  host: CliHost,
  position: CompletionPosition,
  current: string,
): Promise<readonly Candidate[]> {
  const { command, args, option } = position;
  if (option !== undefined) return optionCandidates(host, position, option);
  if (current.startsWith("-")) {
    return command.options.map(({ long, short, description }) => ({
      word: long ?? short ?? "",
      description,
    }));
  }
  return [...(args.length === 0 ? visible(command) : []), ...(await argumentCandidates(host, position))];
}

/** The commands of a group that help lists. */
function visible({ commands }: CommandTree): readonly Candidate[] {
  return commands
    .filter(({ hidden }) => !hidden)
    .map(({ name, description }) => ({ word: name, description }));
}

/** The shell completes file names itself; other values cannot be guessed. */
async function optionCandidates(
  host: CliHost,
  { target, args }: CompletionPosition,
  { choices, long }: OptionEntry,
): Promise<readonly Candidate[]> {
  if (choices !== undefined) return choices.map((word) => ({ word, description: "" }));
  const words = wordsOfOption[long ?? ""];
  if (words !== undefined)
    return words(await import("../../../gen/svc/v1/values.ts")).map((word) => ({ word, description: "" }));
  const kind = kindOfOption[long ?? ""];
  return kind === undefined ? [] : names(host, target, kind, args);
}

async function argumentCandidates(
  host: CliHost,
  position: CompletionPosition,
): Promise<readonly Candidate[]> {
  const { command, group, args } = position;
  // Commander's built-in help command is not in the tree.
  if (args[0] === "help" && args.length === 1 && command.commands.length > 0) {
    if (command !== group) return visible(command);
    const { topicsOf } = await import("../help-topics.ts");
    return [...visible(command), ...(await topicsOf(host))];
  }
  // A group with a default command that takes an app: `svc app settings ID`.
  const taker = command.commands.find(({ name }) => name === "get") ?? command;
  const expected = taker.args[args.length] ?? taker.args.at(-1);
  if (expected === undefined || (args.length >= taker.args.length && !expected.variadic)) return [];
  if (expected.choices !== undefined) return expected.choices.map((word) => ({ word, description: "" }));
  if (expected.name === "method") return listMethods();
  if (command.name === adding && expected.name === "name") return [];
  const argument = expected.name === "name" ? `name of ${group.name}` : expected.name;
  const kind = kindOfArgument[argument];
  if (kind === undefined) return [];
  return (await names(host, position.target, kind, args)).filter(({ word }) => !args.includes(word));
}

/** Options that name a daemon. */
const targetOptions: Readonly<Record<string, keyof NodeOptions>> = {
  "--socket": "socket",
  "--host": "host",
  "--node": "node",
};
/** Options whose values are enums of the contract. */
const wordsOfOption: Readonly<Record<string, (words: typeof Words) => readonly string[]>> = {
  "--state": ({ AppStates }) => AppStates.map((state) => state.toLowerCase()),
  "--runtime": ({ AppRuntimes }) => AppRuntimes,
  "--kind": ({ EventKinds }) => EventKinds,
};
/** The kinds of names that options and arguments take. */
const kindOfOption: Readonly<Record<string, Kind>> = {
  "--app": "app",
  "--project": "project",
  "--storage": "storage",
  "--source": "source",
  "--node": "node",
  "--to": "node",
  "--version": "tag",
};
const kindOfArgument: Readonly<Record<string, Kind>> = {
  id: "app",
  job: "job",
  operation: "operation",
  archive: "archive",
  container: "container",
  node: "node",
  key: "setting",
  "key=value": "assignment",
  spec: "package",
  "name of storage": "storage",
  "name of source": "source",
};
/** An `add` command takes a new name, which cannot be completed. */
const adding = "add";

/** Loaded only when needed: querying a daemon takes longer than everything else here. */
async function names(
  host: CliHost,
  target: NodeOptions,
  kind: Kind,
  args: readonly string[] = [],
): Promise<readonly Candidate[]> {
  const { namesOf } = await import("./complete-names.ts");
  return namesOf(host, target, kind, args);
}

async function listMethods(): Promise<readonly Candidate[]> {
  const { methodPolicies } = await import("../../../gen/svc/v1/methods.ts");
  return Object.keys(methodPolicies).map((name) => ({
    word: name.replace("svc.v1.", "").replace("/", "."),
    description: "",
  }));
}
