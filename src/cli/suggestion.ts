/** Suggests the right command for an unknown one. Commander compares only letters. */
import type { Command } from "commander";
import { isCalled, isCommandName, lineOf } from "./program.ts";

/** Commands of other tools, and other words for commands of svc. */
const otherNames: Readonly<Record<string, string>> = {
  config: "settings",
  cron: "schedule",
  delete: "rm",
  describe: "info",
  details: "info",
  downgrade: "upgrade ID --version OLD",
  du: "disk",
  env: "settings",
  find: "search",
  get: "info",
  health: "info",
  jobs: "schedule list",
  rollback: "upgrade ID --version OLD",
  show: "info",
  ssh: "shell",
  stat: "stats",
  state: "info",
  tail: "logs",
  url: "open --print",
  view: "info",
};

/** Words that ask for information. A suggestion for them never names a command that changes something. */
export const readingWords: ReadonlySet<string> = new Set([
  ...["describe", "details", "du", "env", "find", "get", "health", "info", "inspect", "list", "log", "logs"],
  ...["jobs", "ls", "ps", "show", "stat", "state", "stats", "status", "tail", "url", "view"],
]);
/** Commands of a group that list or show what is in it, the best suggestion first. */
const readingCommands = ["info", "show", "status", "list", "ls", "get"];

/** The first word of the line that is not a command, in the group where a command is expected. */
interface UnknownWord {
  readonly group: Command;
  readonly word: string;
  /** Whether no further word follows. */
  readonly isLast: boolean;
}

/** @returns undefined if all groups of the line are followed by one of their commands */
export function findUnknownWord(program: Command, args: readonly string[]): UnknownWord | undefined {
  let group = program;
  let rest = [...args];
  for (;;) {
    const { operands, unknown } = group.parseOptions(rest);
    const [word] = operands;
    if (word === undefined) return undefined;
    const command = group.commands.find((each) => isCalled(each, word));
    if (command === undefined) return { group, word, isLast: operands.length === 1 };
    if (command.commands.length === 0) return undefined;
    [group, rest] = [command, unknown];
  }
}

/** `svc backup hello` is short for `svc backup create hello`. */
export function isBackupOfApp({ group, word, isLast }: UnknownWord): boolean {
  return lineOf(group) === "svc backup" && isLast && !readingWords.has(word);
}

export function withCreate(args: readonly string[], id: string): readonly string[] {
  return args.toSpliced(args.indexOf(id, args.indexOf("backup") + 1), 0, "create");
}

/** The right command for a misplaced or unknown word: `svc reload` is `svc daemon reload`. */
export function suggestion(program: Command, { group, word }: UnknownWord): string | undefined {
  const lines = suggestedLines(program, group, word);
  return lines.length === 0 ? undefined : `Did you mean: ${lines.join(", or ")}`;
}

function suggestedLines(program: Command, group: Command, word: string): readonly string[] {
  if (group === program) {
    if (Object.hasOwn(otherNames, word)) return [`svc ${otherNames[word] ?? ""}`];
    const known = program.commands.flatMap(({ commands }) => commands.filter((each) => isCalled(each, word)));
    const ofApps = known.find(({ parent }) => parent?.name() === "app");
    return (ofApps === undefined ? known : [ofApps]).map(lineOf);
  }
  const isOfApps = lineOf(group) === "svc app";
  if (isOfApps && isCommandName(word)) return [`svc ${word}`];
  if (!readingWords.has(word)) return [];
  const reading = readingCommands.find((name) => group.commands.some((each) => isCalled(each, name)));
  if (reading === undefined) return [];
  return [isOfApps && isCommandName(reading) ? `svc ${reading}` : `${lineOf(group)} ${reading}`];
}
