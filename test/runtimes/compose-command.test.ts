/** Which compose is taken, and with which environment. */
import test from "ava";
import type { Identities } from "../../src/identity/identities.ts";
import type { Identity } from "../../src/identity/identity.ts";
import type { CommandResult, RunCommandOptions } from "../../src/identity/identity-work.ts";
import { ComposeCommand } from "../../src/runtimes/compose/compose-command.ts";

type Program = (program: string, env: Readonly<Record<string, string>>) => string | undefined;

/** A host with what `versionOf` says: a version, or a program that fails. Tells what was run, as `program [distutils]`. */
function hostWith(versionOf: Program): { command: ComposeCommand; identity: Identity; ran: string[] } {
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
  const identity = { runCommand } as unknown as Identity;
  const identities = { selfUid: 0, as: () => Promise.resolve(identity) } as unknown as Identities;
  return { command: new ComposeCommand(identities), identity, ran };
}

for (const [name, versionOf, expected, isClassic] of [
  ["the second", (program) => (program === "docker" ? "v2.40.3" : "1.29.2"), "docker", false],
  ["the first", (program) => (program === "docker" ? undefined : "1.29.2"), "docker-compose stdlib", true],
  [
    // From Python 3.12 on.
    "the first, whose Python has no such modules of its own",
    (program, env) =>
      program === "docker" || env["SETUPTOOLS_USE_DISTUTILS"] !== undefined ? undefined : "1.29.2",
    "docker-compose",
    true,
  ],
] satisfies [string, Program, string, boolean][]) {
  test(`what is run where a host has ${name}`, async (t) => {
    const { command, identity, ran } = hostWith(versionOf);
    t.is(await command.isClassic(), isClassic);
    const [found] = JSON.parse(await command.fingerprint()) as [{ version: string }];
    t.is(found.version, isClassic ? "1.29.2" : "v2.40.3");
    ran.length = 0;
    t.is((await command.run(identity, ["config"], { timeoutMs: 1_000 })).exitCode, 0);
    t.deepEqual(ran, [expected]);
  });
}
