/** Help and completion show the commands from a list; each entry must say what the command's module says. */
import test from "ava";
import type { Command } from "commander";
import { createProgram } from "../../src/cli/program.ts";

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
