/** Each of git's protections by itself, with the ones beside it out of the way (threats 35, 50). */
import { execFile } from "node:child_process";
import { access, chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  gitCommand,
  listRefsArgs,
  localGitCommand,
  type GitCommand,
} from "../../src/packages/git-command.ts";
import { minimalManifest, TestRepository } from "./support/repository.ts";
import { World } from "./support/world.ts";
import { keepInMemory } from "../support/in-memory.ts";

keepInMemory();

const surroundings = { maxMemoryBytes: 512 * 2 ** 20, maxFileBytes: 2 ** 30 };

/** Runs it to its end, whatever that is. */
async function run({ argv: [program = "", ...args], env }: GitCommand, cwd = "/"): Promise<void> {
  await promisify(execFile)(program, args, { env, cwd }).catch(() => undefined);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** A program that leaves a canary. */
async function writeTrap(path: string, canary: string): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(path, `#!/bin/sh\ntouch ${canary}\n`);
  await chmod(path, 0o755);
}

test("the configuration alone refuses helper programs as protocols, whatever a repository's own says", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.git("config", "protocol.ext.allow", "always");
  const args = ["ls-remote", `ext::touch ${world.path("canary")}`];
  const { argv, env } = localGitCommand(repository.path, args, surroundings);
  const { GIT_ALLOW_PROTOCOL: _, ...rest } = env;
  await run({ argv, env: rest });
  t.false(await exists(world.path("canary")));
});

test("the environment alone refuses all protocols but the URL's", async (t) => {
  await using world = await World.create();
  const args = ["-c", "protocol.ext.allow=always", "ls-remote", `ext::touch ${world.path("canary")}`];
  await run(gitCommand(args, surroundings, "https"));
  t.false(await exists(world.path("canary")));
});

test("a URL is never an option", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("HEAD"));
  await repository.commit({ a: "a" });
  const trap = world.path("trap");
  await writeTrap(trap, world.path("canary"));
  const args = listRefsArgs({ transport: "file", url: `--upload-pack=${trap}` });
  await run(gitCommand(["-c", "safe.directory=*", ...args], surroundings, "file"), world.path());
  t.false(await exists(world.path("canary")));
});

test("hooks of a user's repository are not run", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.commit({ a: "a" });
  await writeTrap(join(repository.path, ".git", "hooks", "reference-transaction"), world.path("canary"));
  await run(localGitCommand(repository.path, ["update-ref", "refs/heads/x", "HEAD"], surroundings));
  t.is(
    await repository.git("-c", "core.hooksPath=/dev/null", "rev-parse", "x"),
    await repository.git("rev-parse", "HEAD"),
  );
  t.false(await exists(world.path("canary")));
});

test("the file system monitor of a user's repository is not run", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.commit({ a: "a" });
  const trap = world.path("trap");
  await writeTrap(trap, world.path("canary"));
  await repository.git("config", "core.fsmonitor", trap);
  await run(localGitCommand(repository.path, ["status"], surroundings));
  t.false(await exists(world.path("canary")));
});

test("objects that are not sound are refused, however they come", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.commit({ "svc.yaml": minimalManifest("r", "1") });
  const blob = await repository.git("rev-parse", "HEAD:svc.yaml");
  const entry = (name: string): Buffer =>
    Buffer.concat([Buffer.from(`100644 ${name}\0`), Buffer.from(blob, "hex")]);
  await writeFile(world.path("tree"), Buffer.concat([entry(".."), entry("svc.yaml")]));
  const tree = await repository.git("hash-object", "-t", "tree", "--literally", "-w", world.path("tree"));
  const commit = await repository.git("commit-tree", tree, "-m", "x");
  await repository.git("update-ref", "refs/heads/main", commit);
  const work = world.resolver().resolve({ spec: repository.fileUrl }, process.getuid?.() ?? 0);
  const error = await t.throwsAsync(work, { instanceOf: SvcError });
  t.regex(error.message, /not sound/);
});
