/** The choice of the compose program and of its environment. */
import test from "ava";
import type { UserHelpers } from "../../src/run-as/user-helpers.ts";
import type { UserHelper } from "../../src/run-as/user-helper.ts";
import type { CommandResult, RunCommandOptions } from "../../src/run-as/user-helper-types.ts";
import { ComposeCommand } from "../../src/runtimes/compose/compose-command.ts";

type Program = (program: string, env: Readonly<Record<string, string>>) => string | undefined;

/**
 * A host with the given result of `version`: a version, or a program that fails. Records the run programs as `program
 * [distutils]`.
 */
function hostWith(versionOf: Program): { command: ComposeCommand; userHelper: UserHelper; ran: string[] } {
  const ran: string[] = [];
  const runCommand = (
    [program = ""]: readonly string[],
    options: RunCommandOptions,
  ): Promise<CommandResult> => {
    const { env = {} } = options;
    ran.push([program, env["SETUPTOOLS_USE_DISTUTILS"]].filter((part) => part !== undefined).join(" "));
    const version = versionOf(program, env);
    const result = { exitCode: version === undefined ? 1 : 0, stdout: version ?? "", stderr: "" };
    return Promise.resolve(result as CommandResult);
  };
  const userHelper = { runCommand } as unknown as UserHelper;
  const userHelpers = { selfUid: 0, as: () => Promise.resolve(userHelper) } as unknown as UserHelpers;
  return { command: new ComposeCommand(userHelpers), userHelper, ran };
}

for (const [name, versionOf, expected, isClassic] of [
  ["the second", (program) => (program === "docker" ? "v2.40.3" : "1.29.2"), "docker", false],
  ["the first", (program) => (program === "docker" ? undefined : "1.29.2"), "docker-compose stdlib", true],
  [
    // From Python 3.12 on.
    "the first, whose Python lacks these modules",
    (program, env) =>
      program === "docker" || env["SETUPTOOLS_USE_DISTUTILS"] !== undefined ? undefined : "1.29.2",
    "docker-compose",
    true,
  ],
] satisfies [string, Program, string, boolean][]) {
  test(`the program on a host with ${name}`, async (t) => {
    const { command, userHelper, ran } = hostWith(versionOf);
    t.is(await command.isClassic(), isClassic);
    const [found] = JSON.parse(await command.fingerprint()) as [{ version: string }];
    t.is(found.version, isClassic ? "1.29.2" : "v2.40.3");
    ran.length = 0;
    t.is((await command.run(userHelper, ["config"], { timeoutMs: 1_000 })).exitCode, 0);
    t.deepEqual(ran, [expected]);
  });
}
