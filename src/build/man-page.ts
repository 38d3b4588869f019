/** `man svc`, in roff's man macros (man-pages(7)), from the commands as completion knows them. */
import type { CommandTree, OptionEntry } from "../cli/command-tree.ts";
import { exitCodeHelp } from "../cli/exit-codes.ts";

export interface ManPage {
  readonly program: CommandTree;
  readonly version: string;
  /** `2026-03-29` */
  readonly date: string;
}

export function manPage({ program, version, date }: ManPage): string {
  const commands = usagesOf(program).flatMap(({ usage, description, options }) => [
    `.SS "${text(usage)}"`,
    sentence(description),
    ...options.flatMap(optionLines),
  ]);
  return [
    `.TH SVC 1 "${date}" "svc ${text(version)}" "User Commands"`,
    ".SH NAME",
    "svc \\- runs the software on this machine",
    ".SH SYNOPSIS",
    ".B svc",
    ".RI [ options ]",
    ".I command",
    ".RI [ arguments ]",
    ".SH DESCRIPTION",
    text(program.description),
    ".SH OPTIONS",
    "These may stand before or after the name of every command.",
    ...program.options.flatMap(optionLines),
    ".SH COMMANDS",
    ...commands,
    ".SH EXIT STATUS",
    ...exitCodeHelp.split("\n").flatMap(exitLines),
    ".SH FILES",
    ...[
      ["/etc/svc/svc.toml", "The configuration: svc.toml(5)."],
      ["svc.yaml", "The manifest of a package: svc.yaml(5)."],
      ["/var/lib/svc", "The store and the apps."],
      ["/run/svc/svc.sock", "The daemon\\(aqs socket."],
    ].flatMap(([file = "", what = ""]) => [".TP", `.I ${file}`, what]),
    "",
  ].join("\n");
}

/** A command that does something. */
export interface Usage {
  /** `svc app start ID...` */
  readonly usage: string;
  readonly description: string;
  /** Its own, beside those of every command. */
  readonly options: readonly OptionEntry[];
}

/** The commands that do something, in the order of the help. */
export function usagesOf(program: CommandTree): Usage[] {
  const shared = new Set(program.options.map(({ long }) => long));
  return leavesOf(program, [], shared).map(({ path, command }) => ({
    usage: usageOf(path, command),
    description: command.description,
    options: command.options.filter(({ long }) => !shared.has(long)),
  }));
}

/** `-n, --tail VALUE` */
export function flagsOf({ short, long, takesValue }: OptionEntry): string {
  const flags = [short, long].filter((flag) => flag !== undefined).join(", ");
  return `${flags}${takesValue ? " VALUE" : ""}`;
}

interface Leaf {
  readonly path: readonly string[];
  readonly command: CommandTree;
}

/**
 * Those without others below them, and those with options of their own.
 * @param shared options that every command has
 */
function leavesOf(
  command: CommandTree,
  path: readonly string[],
  shared: ReadonlySet<string | undefined>,
): Leaf[] {
  const here = [...path, command.name];
  const shown = command.commands.filter(({ hidden, name }) => !hidden && name !== "help");
  const isLeaf = shown.length === 0 || command.options.some(({ long }) => !shared.has(long));
  return [
    ...(isLeaf ? [{ path: here, command }] : []),
    ...shown.flatMap((child) => leavesOf(child, here, shared)),
  ];
}

function usageOf(path: readonly string[], { args }: CommandTree): string {
  const words = args.map(({ name, variadic }) => `${name.toUpperCase()}${variadic ? "..." : ""}`);
  return [...path, ...words].join(" ");
}

function optionLines(option: OptionEntry): string[] {
  return [".TP", `.B ${text(flagsOf(option))}`, sentence(option.description)];
}

function exitLines(line: string): string[] {
  const [, code, meaning] = /^ +(\d+) +(.+)$/.exec(line) ?? [];
  return code === undefined || meaning === undefined ? [] : [".TP", `.B ${code}`, sentence(meaning)];
}

export function sentence(words: string): string {
  return text(plainSentence(words));
}

/** With a capital and a full stop; empty for nothing. */
export function plainSentence(words: string): string {
  const line = words === "" ? "" : `${words[0]?.toUpperCase() ?? ""}${words.slice(1)}`;
  return /[.!?]$/.test(line) || line === "" ? line : `${line}.`;
}

/** No backslash, and no dot or apostrophe that begins a line, is an instruction; a hyphen is one that can be copied. */
export function text(words: string): string {
  return words
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll('"', "\\(dq")
    .replaceAll(/^[.']/gm, "\\&$&");
}
