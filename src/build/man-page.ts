/** `man svc`, in roff's man macros (man-pages(7)), from what the help says of the commands. */
import { exitCodeHelp } from "../cli/exit-codes.ts";
import type { CommandEntry, Entry, Manual } from "./manual.ts";

export interface ManPage {
  readonly manual: Manual;
  readonly version: string;
  /** `2026-03-29` */
  readonly date: string;
}

export function manPage({ manual, version, date }: ManPage): string {
  return [
    `.TH SVC 1 "${date}" "svc ${text(version)}" "User Commands"`,
    // What is a word of a command line stays one.
    ".nh",
    ".ad l",
    ".SH NAME",
    "svc \\- runs the software on this machine",
    ".SH SYNOPSIS",
    ".B svc",
    ".RI [ options ]",
    ".I command",
    ".RI [ arguments ]",
    ".SH DESCRIPTION",
    ...[
      "svc installs, runs, watches, schedules and backs up applications, as processes, services or containers.",
      "A daemon, svc daemon, keeps them running. Root's daemon is for everybody on the machine, each of whom has apps and rights of their " +
        "own there; a user without one can run their own. Without a daemon, a command does its work itself, and jobs do not fire.",
      "svc help topics lists the pages of the guide, svc COMMAND --help says what is said here of a command, svc setup writes a commented " +
        "configuration and svc doctor checks what svc needs of the host.",
    ].flatMap((words) => [".PP", text(words)]),
    ".SH OPTIONS",
    "These may stand before or after the name of every command.",
    ...manual.options.flatMap(entryLines),
    ".SH COMMANDS",
    "What stands in square brackets may be left out, and of what is followed by dots there may be several. svc start, stop, restart and logs " +
      "are short for those of svc app.",
    ...manual.commands.flatMap(commandLines),
    ".SH EXAMPLES",
    ...manual.commands.flatMap(exampleLines),
    ".SH EXIT STATUS",
    ...exitCodeHelp.split("\n").flatMap(exitLines),
    ".SH ENVIRONMENT",
    ...[
      ["SVC_NODE, SVC_HOST", "The daemon that a command asks, as --node and --host name it."],
      [
        "SVC_TOKEN_FILE, SVC_CREDENTIAL_HELPER, SVC_CA_FILE",
        "For an https address that is no node: svc help installing.",
      ],
      ["SVC_SSH", "The program that is called instead of ssh."],
      ["NO_COLOR", "Where it is set, nothing is coloured."],
      ["PAGER", "Shows what is long on a terminal; less where it is not set."],
      ["VISUAL, EDITOR", "What svc schedule edit opens."],
    ].flatMap(([term = "", says = ""]) => entryLines({ term, says })),
    ".SH FILES",
    text("A user's own in the second place."),
    ...[
      ["/etc/svc/svc.toml, ~/.config/svc/svc.toml", "The configuration: svc.toml(5)."],
      ["/var/lib/svc, ~/.local/state/svc", "The store, and the apps with their data."],
      ["/run/svc/svc.sock, $XDG_RUNTIME_DIR/svc/svc.sock", "The daemon's socket."],
      ["svc.yaml", "The manifest of a package: svc.yaml(5)."],
    ].flatMap(([file = "", what = ""]) => [".TP", `.I ${text(file)}`, text(what)]),
    ".SH SEE ALSO",
    ".BR svc.toml (5),",
    ".BR svc.yaml (5),",
    ".BR systemctl (1),",
    ".BR journalctl (1)",
    "",
  ].join("\n");
}

function commandLines({ usage, aliases, description, args, options, notes }: CommandEntry): string[] {
  const also = aliases.length === 0 ? "" : ` Also: ${aliases.join(", ")}.`;
  return [
    `.SS "${text(usage)}"`,
    `${sentence(description)}${text(also)}`,
    ...[...args, ...options].flatMap(entryLines),
    ...notes.flatMap(({ text: words, isFixed }) =>
      isFixed ? [".PP", ...fixed(words.split("\n"))] : [".PP", text(words)],
    ),
  ];
}

function exampleLines({ usage, examples }: CommandEntry): string[] {
  return examples.length === 0
    ? []
    : [".PP", `${text(usage)}:`, ".PP", ...fixed(examples.map((line) => `  ${line}`))];
}

/** Lines as they are. */
function fixed(lines: readonly string[]): string[] {
  return [".nf", ...lines.map(text), ".fi"];
}

/** In the words of the help: what is typed has no capital because it comes first. */
function entryLines({ term, says }: Entry): string[] {
  return [".TP", `.B ${text(term)}`, text(says)];
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

/** What is no letter to roff, for it to print the character that can be copied (groff_char(7)). */
const characters: Readonly<Record<string, string>> = {
  "\\": "\\e",
  "-": "\\-",
  '"': "\\(dq",
  "'": "\\(aq",
  "`": "\\(ga",
  "^": "\\(ha",
  "~": "\\(ti",
};

/** Nothing in it is an instruction. */
export function text(words: string): string {
  return words
    .replaceAll(/[\\"'`^~-]/g, (character) => characters[character] ?? "")
    .replaceAll(/^\./gm, "\\&.");
}
