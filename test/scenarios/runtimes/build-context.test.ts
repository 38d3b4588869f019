/** The daemon's reads of a build context are limited (docs/threat-model.md). */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import { openBuildContext } from "../../../src/runtimes/docker/build-context.ts";
import { programs } from "../../support/programs.ts";

const allowedBytes = 256 * 1024;

interface Package {
  readonly repo: string;
  readonly open: (maxBytes?: number) => ReturnType<typeof openBuildContext>;
}

/** On a disk, creating many files soon after removing many takes longer than the test. */
const manyFilesDir = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

async function packageOf(t: ExecutionContext, parent = tmpdir()): Promise<Package> {
  const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
  const root = await mkdtemp(join(parent, "svc-context-"));
  t.teardown(async () => {
    await userHelpers[Symbol.asyncDispose]();
    await rm(root, { recursive: true });
  });
  const repo = join(root, "repo");
  await mkdir(repo);
  await writeFile(join(repo, "Dockerfile"), "FROM scratch\n");
  const userHelper = await userHelpers.as(process.getuid?.() ?? 0);
  const given = {
    userHelper,
    root,
    path: "repo",
    dockerfile: "Dockerfile",
    check: (text: string) => Promise.resolve(text),
  };
  return {
    repo,
    open: (maxBytes) =>
      openBuildContext({ ...given, timeoutMs: 120_000, ...(maxBytes !== undefined && { maxBytes }) }),
  };
}

for (const file of ["Dockerfile", ".dockerignore"]) {
  test(`a ${file} above the size limit is not read`, async (t) => {
    const { repo, open } = await packageOf(t);
    const line = "# a comment\n";
    await writeFile(join(repo, file), line.repeat(allowedBytes / line.length + 1));
    await t.throwsAsync(open(), { message: /262144/ });
    await writeFile(join(repo, file), line.repeat(100));
    (await open()).archive.resume().destroy();
  });
}

test("a Dockerfile that is not UTF-8 is rejected, not changed", async (t) => {
  const { repo, open } = await packageOf(t);
  await writeFile(join(repo, "Dockerfile"), Buffer.from("FROM scratch\nENV NAME=J\xfcrgen\n", "latin1"));
  t.like(await t.throwsAsync(open()), {
    reason: "build_failed",
    message: 'the file "Dockerfile" is not UTF-8',
  });
});

test("a context of more than 100,000 entries is rejected before it is read", async (t) => {
  t.timeout(240_000);
  const { repo, open } = await packageOf(t, manyFilesDir);
  const make = `mkdir many && cd many && seq 99999 | xargs touch`;
  execFileSync("sh", ["-c", make], { cwd: repo });
  t.like(await t.throwsAsync(open()), { reason: "too_many" });
  // With the directory and the Dockerfile, one entry too many.
  await rm(join(repo, "many/1"));
  (await open()).archive.resume().destroy();
});

test("names of more than 32 MiB are not stored", async (t) => {
  t.timeout(240_000);
  const { repo, open } = await packageOf(t);
  // More than 3,200 bytes of directories before each name.
  const deep = Array.from({ length: 16 }, () => "d".repeat(200)).join("/");
  const make = `mkdir -p ${deep} && cd ${deep} && seq 10500 | xargs touch`;
  execFileSync("sh", ["-c", make], { cwd: repo });
  await t.throwsAsync(open(), { message: /33554432 bytes of file names/ });
});

test("a context that grows above the limit fails while it is sent", async (t) => {
  const { repo, open } = await packageOf(t);
  await writeFile(join(repo, "large"), Buffer.alloc(1 << 20));
  const { archive } = await open(1 << 20);
  await t.throwsAsync(buffer(archive), { message: /more than 1048576 bytes/ });
  const whole = await open(2 << 20);
  t.true((await buffer(whole.archive)).length > 1 << 20);
});
