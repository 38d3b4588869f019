/** The help of `svc` itself, and the table of other names. */
import test from "ava";
import { commandTree } from "../../src/build/command-program.ts";
import { dailyCommands } from "../../src/cli/daily-help.ts";
import { commandGroups } from "../../src/cli/command-list.ts";
import { runSvc } from "./support/run-svc.ts";

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

test("the list of commands has the other names of each command", (t) => {
  for (const [name, { aliases = [] }] of Object.values(commandGroups).flatMap((group) =>
    Object.entries(group),
  ))
    t.deepEqual(commands.find((command) => command.name === name)?.aliases, aliases, name);
});
