/** Generates `man svc` in roff's man macros (man-pages(7)) from the help of the commands. */
import { exitCodeHelp, exitCodeNote } from "../cli/output/exit-codes.ts";
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
    // No hyphenation, so that words of a command line are not split.
    ".nh",
    ".ad l",
    ".SH NAME",
    "svc \\- run the software on this host",
    ".SH SYNOPSIS",
    ".B svc",
    ".RI [ options ]",
    ".I command",
    ".RI [ arguments ]",
    ".SH DESCRIPTION",
    ...[
      "svc installs, runs, watches, schedules and backs up applications, as processes, services or containers.",
      "A daemon, svc daemon, keeps them running. Root's daemon serves all users of the host, each with their " +
        "own apps and rights. Without it, a user can run their own daemon. Without any daemon, commands do their work themselves, and jobs do not run.",
      "svc help topics lists the pages of the guide. svc COMMAND --help shows the help of a command. svc setup writes a commented " +
        "configuration, and svc doctor checks that the host meets svc's requirements.",
    ].flatMap((words) => [".PP", text(words)]),
    ".SH OPTIONS",
    "These are valid before or after the name of every command.",
    ...manual.options.flatMap(entryLines),
    ".SH COMMANDS",
    "Square brackets mark optional parts, and dots mark parts that can be repeated. Commands of svc app that are also " +
      "commands of svc, such as svc app start, are the same.",
    ...manual.commands.flatMap(commandLines),
    ".SH EXAMPLES",
    ...manual.commands.flatMap(exampleLines),
    ".SH EXIT STATUS",
    ...exitCodeHelp.split("\n").flatMap(exitLines),
    ".PP",
    text(exitCodeNote),
    ".SH ENVIRONMENT",
    ...[
      ["SVC_NODE, SVC_HOST", "The daemon to use, as with --node and --host."],
      [
        "SVC_TOKEN_FILE, SVC_CREDENTIAL_HELPER, SVC_CA_FILE",
        "For an https address that is not a node: svc help installing.",
      ],
      ["SVC_SSH", "The program to call instead of ssh."],
      ["NO_COLOR", "Disables colors."],
      ["PAGER", "Pager for long output on a terminal; default: less."],
      ["VISUAL, EDITOR", "Editor for svc schedule edit."],
    ].flatMap(([term = "", description = ""]) => entryLines({ term, description })),
    ".SH FILES",
    text("The second path is that of a user's own daemon."),
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

/** Preformatted lines. */
function fixed(lines: readonly string[]): string[] {
  return [".nf", ...lines.map(text), ".fi"];
}

/** As in the help: a term that is typed is not capitalized. */
function entryLines({ term, description }: Entry): string[] {
  return [".TP", `.B ${text(term)}`, text(description)];
}

function exitLines(line: string): string[] {
  const [, code, meaning] = /^ +(\d+) +(.+)$/.exec(line) ?? [];
  return code === undefined || meaning === undefined ? [] : [".TP", `.B ${code}`, sentence(meaning)];
}

export function sentence(words: string): string {
  return text(plainSentence(words));
}

/** Adds a capital letter and a full stop; empty for empty text. */
export function plainSentence(words: string): string {
  const line = words === "" ? "" : `${words[0]?.toUpperCase() ?? ""}${words.slice(1)}`;
  return /[.!?]$/.test(line) || line === "" ? line : `${line}.`;
}

/** Escapes that make roff print characters that can be copied (groff_char(7)). */
const characters: Readonly<Record<string, string>> = {
  "\\": "\\e",
  "-": "\\-",
  '"': "\\(dq",
  "'": "\\(aq",
  "`": "\\(ga",
  "^": "\\(ha",
  "~": "\\(ti",
};

/** Escapes text, so that nothing in it is an instruction. */
export function text(words: string): string {
  return words
    .replaceAll(/[\\"'`^~-]/g, (character) => characters[character] ?? "")
    .replaceAll(/^\./gm, "\\&.");
}
