/** The help of `svc` itself, and the table of other names. */
import test from "ava";
import { commandTree } from "../../src/build/manual.ts";
import { dailyCommands } from "../../src/cli/daily-help.ts";
import { commandGroups } from "../../src/cli/command-list.ts";
import { readingWords } from "../../src/cli/suggestion.ts";
import { runSvc } from "./support/run-svc.ts";
import type { Command } from "commander";
import { createProgram } from "../../src/cli/program.ts";

const { commands } = await commandTree();

for (const args of [["--help"], ["help"], ["-h"], ["--help", "--no-color"]]) {
  test(`svc ${args.join(" ")} fits a screen of 24 lines with 80 columns`, async (t) => {
    const { stdout, exitCode } = await runSvc(args);
    t.is(exitCode, 0);
    const lines = stdout.trimEnd().split("\n");
    t.true(lines.length < 24, String(lines.length));
    for (const line of lines) t.true(line.length <= 80, line);
    t.regex(stdout, /^More: svc help --all/m);
  });
}

test("svc without a command prints the same help as an error", async (t) => {
  const run = await runSvc([]);
  t.like(run, { exitCode: 2, stdout: "" });
  t.is(run.stderr.trimEnd(), (await runSvc(["--help"])).stdout.trimEnd());
});

test("svc --help names only commands that exist", (t) => {
  const names = commands.flatMap(({ name, aliases: others }) => [name, ...others]);
  for (const [usage] of dailyCommands)
    for (const word of usage.split(/[ ,]+/).filter((each) => /^[a-z]+$/.test(each) && each !== "latest"))
      t.true(names.includes(word), word);
});

test("svc help --all and svc --help --all list every command", async (t) => {
  for (const args of [
    ["help", "--all"],
    ["--help", "--all"],
  ]) {
    const { stdout } = await runSvc(args);
    for (const { name, hidden } of commands)
      t.is(new RegExp(`^  ${name}\\b`, "m").test(stdout), !hidden, name);
  }
});

test("svc help may follow global options", async (t) => {
  const topics = await runSvc(["help", "topics"]);
  t.regex(topics.stdout, /^Tutorials:\n/);
  for (const args of [
    ["--socket", "/run/other.sock", "help", "topics"],
    ["--no-color", "help", "topics"],
    ["help", "topics", "--timeout", "5"],
  ])
    t.is((await runSvc(args)).stdout, topics.stdout, args.join(" "));
  const command = await runSvc(["--timeout", "5", "help", "app", "export"]);
  t.regex(command.stdout, /^Usage: svc app export /);
  const mistyped = await runSvc(["--timeout", "5", "help", "topcis"]);
  t.like(mistyped, { exitCode: 2, stdout: "" });
  const options = await runSvc(["help", "options"]);
  t.is((await runSvc(["--socket", "/run/other.sock", "help", "options"])).stdout, options.stdout);
});

test("svc help options lists the options of every command, and the help of a command points there", async (t) => {
  const { stdout: options, exitCode } = await runSvc(["help", "options"]);
  t.is(exitCode, 0);
  for (const option of ["--socket", "-H, --host", "--json", "--columns", "-q, --quiet", "-y, --yes"])
    t.regex(options, new RegExp(`^  ${option}\\b`, "m"), option);
  for (const args of [
    ["rm", "--help"],
    ["help", "backup", "create"],
    ["backup", "--help"],
  ]) {
    const { stdout } = await runSvc(args);
    t.regex(stdout, /\n\nGlobal options, such as --json and --yes: svc help options\n/);
    t.notRegex(stdout, /--columns/);
  }
});

for (const [typed, meant] of [
  ["backup-to-s3", "svc help back-up-to-s3"],
  ["restore-file", "svc help restore-one-file"],
  ["proxy", "svc help use-a-reverse-proxy"],
  ["schedules-and-backups", "svc help jobs-and-backups"],
] as const) {
  test(`svc help ${typed} names the page that exists`, async (t) => {
    const { stderr, exitCode } = await runSvc(["help", typed]);
    t.is(exitCode, 2);
    t.true(stderr.includes(`\nDid you mean: ${meant}`), stderr);
  });
}

const changing =
  /^svc (start|stop|restart|rm|remove|install|upgrade|clone|kill|reboot|restore|backup (ID|rm|create)|app )/;

test("words that only ask for information suggest no command that changes something", async (t) => {
  for (const word of readingWords) {
    const { stderr, exitCode } = await runSvc([word, "x"]);
    if (exitCode !== 2) continue;
    const [, suggested = ""] = /^Did you mean: (.*)$/m.exec(stderr) ?? [];
    for (const line of suggested.split(", or ")) t.notRegex(line, changing, word);
  }
});

test("the list of commands has the other names of each command", (t) => {
  for (const [name, { aliases = [] }] of Object.values(commandGroups).flatMap((group) =>
    Object.entries(group),
  ))
    t.deepEqual(commands.find((command) => command.name === name)?.aliases, aliases, name);
});

// Help and completion show the commands from a list; each entry must say what the command's module says.

const output = { columns: 80, write: () => undefined };
const host = { args: [], version: "", stdout: output, stderr: output };

function programOf(args?: readonly string[]): Promise<Command> {
  return createProgram(
    host as never,
    () => () => Promise.resolve(),
    () => Promise.resolve(),
    args,
  );
}

async function help(args?: readonly string[]): Promise<string> {
  return (await programOf(args)).helpInformation();
}

test("the help without loaded commands is the help of all commands", async (t) => {
  const all = await help();
  t.regex(all, /install \[options\] <spec>/);
  for (const args of [["--all"], ["--help", "--all"], ["help", "--all"], ["--socket", "ls", "--all"]])
    t.is(await help(args), all);
});

test("a line loads only the command that it names", async (t) => {
  for (const args of [["list"], ["help", "ls"], ["-N", "far", "ls", "--watch"]]) {
    const { commands } = await programOf(args);
    t.deepEqual(
      commands.map((command) => command.name()),
      ["ls"],
    );
  }
});
