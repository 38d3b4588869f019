/** The actual cause of an errno that has several meanings. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { describeSpawnFailure, missingProgram } from "../../src/runtimes/process/spawn-failure.mjs";
import { nextEvent } from "../support/eventually.ts";

const cases: { title: string; program: string; cwd?: string; expected: RegExp }[] = [
  {
    title: "not in PATH",
    program: "nosuchprogram",
    expected: /^program "nosuchprogram" was not found in PATH$/,
  },
  { title: "not there", program: "./nothing", expected: /^program "\.\/nothing" was not found$/ },
  { title: "not executable", program: "./plain", expected: /^program "\.\/plain" is not executable$/ },
  {
    title: "a script without its interpreter",
    program: "./script",
    expected: /^program "\.\/script" cannot be run: the interpreter that it names was not found$/,
  },
  {
    title: "a working directory that is gone",
    program: "sh",
    cwd: "gone",
    expected: /^program "sh" cannot be run: its working directory ".*\/gone" cannot be entered$/,
  },
  { title: "anything else", program: "./" + "x".repeat(300), expected: /cannot be run: .*ENAMETOOLONG/ },
];

for (const { title, program, cwd = ".", expected } of cases) {
  test(`a program that cannot be run reports why: ${title}`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-spawn-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await writeFile(join(dir, "plain"), "#!/bin/sh\n", { mode: 0o644 });
    await writeFile(join(dir, "script"), "#!/nonexistent/interpreter\n", { mode: 0o755 });
    const workingDir = join(dir, cwd);
    const error = await spawnError(program, workingDir);
    t.regex(describeSpawnFailure(error, program, workingDir), expected);
  });
}

test("what a program lacks is known before another one executes it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-spawn-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "plain"), "");
  const missing = (program: string, path?: string): string | undefined =>
    missingProgram({ argv: [program], cwd: dir, env: path === undefined ? {} : { PATH: path } });
  for (const [program, path] of [
    ["./plain", "/usr/bin"],
    ["plain", `/nonexistent:${dir}`],
    ["plain", "/nonexistent:"],
    ["plain", undefined],
  ] as const)
    t.is(missing(program, path), undefined, `${program} in ${path ?? "no PATH"}`);
  t.is(missing("plain", "/usr/bin"), 'program "plain" was not found in PATH');
  t.is(missing("./none", "/usr/bin"), 'program "./none" was not found');
});

/** Some errors are thrown, others come later. */
async function spawnError(program: string, cwd: string): Promise<NodeJS.ErrnoException> {
  try {
    const [error] = (await nextEvent(spawn(program, { cwd }), "error")) as [NodeJS.ErrnoException];
    return error;
  } catch (error) {
    return error as NodeJS.ErrnoException;
  }
}
