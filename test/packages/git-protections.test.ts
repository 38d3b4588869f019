/** Each of git's protections separately, with the redundant ones disabled. */
import { execFile } from "node:child_process";
import { access, chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  gitCommand,
  type GitCommand,
  listRefsArgs,
  localGitCommand,
} from "../../src/packages/git/git-command.ts";
import { minimalManifest, TestRepository } from "./support/repository.ts";
import { World } from "./support/world.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { gitFailure } from "../../src/packages/git/git-failure.ts";
import { readRefs } from "../../src/packages/git/git-refs.ts";

keepInMemory();

const surroundings = { maxMemoryBytes: 512 * 2 ** 20, maxFileBytes: 2 ** 30 };

/** Runs it to its end and ignores the result. */
async function run({ argv: [program = "", ...args], env }: GitCommand, cwd = "/"): Promise<void> {
  await promisify(execFile)(program, args, { env, cwd }).catch(() => undefined);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** A program that creates a canary file. */
async function writeTrap(path: string, canary: string): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(path, `#!/bin/sh\ntouch ${canary}\n`);
  await chmod(path, 0o755);
}

test("the configuration by itself rejects helper programs as protocols, whatever a repository's own configuration sets", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.git("config", "protocol.ext.allow", "always");
  const args = ["ls-remote", `ext::touch ${world.path("canary")}`];
  const { argv, env } = localGitCommand(repository.path, args, surroundings);
  const { GIT_ALLOW_PROTOCOL: _, ...rest } = env;
  await run({ argv, env: rest });
  t.false(await exists(world.path("canary")));
});

test("the environment by itself rejects all protocols except the URL's", async (t) => {
  await using world = await World.create();
  const args = ["-c", "protocol.ext.allow=always", "ls-remote", `ext::touch ${world.path("canary")}`];
  await run(gitCommand(args, surroundings, "https"));
  t.false(await exists(world.path("canary")));
});

test("a URL is never parsed as an option", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("HEAD"));
  await repository.commit({ a: "a" });
  const trap = world.path("trap");
  await writeTrap(trap, world.path("canary"));
  const args = listRefsArgs({ transport: "file", url: `--upload-pack=${trap}` });
  await run(gitCommand(["-c", "safe.directory=*", ...args], surroundings, "file"), world.path());
  t.false(await exists(world.path("canary")));
});

test("ssh forwards nothing to a host that a user names, whatever the configuration sets", async (t) => {
  await using world = await World.create();
  const file = world.path("ssh_config");
  await writeFile(file, "Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  LocalForward 7777 127.0.0.1:7777\n");
  const { env } = gitCommand([], surroundings, "ssh");
  const command = `${env["GIT_SSH_COMMAND"] ?? ""} -F ${file} -G host`;
  const { stdout } = await promisify(execFile)("sh", ["-c", command]);
  t.regex(stdout, /^forwardagent no$/m);
  t.regex(stdout, /^forwardx11 no$/m);
  t.regex(stdout, /^clearallforwardings yes$/m);
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

test("a git that returns an option instead of a tree passes no option to git", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("r"));
  await repository.commit({ "svc.yaml": minimalManifest("r", "1") });
  const target = world.path("written");
  // As a user can achieve it by tracing their helper: only \`rev-parse\` of a tree gets another result.
  await mkdir(world.path("bin"));
  const lying = `#!/bin/sh\ncase "$*" in *"{tree}"*) echo --output=${target} ;; *) exec /usr/bin/git "$@" ;; esac\n`;
  await writeFile(world.path("bin/git"), lying);
  await chmod(world.path("bin/git"), 0o755);
  const environment = { ...surroundings, searchPath: `${world.path("bin")}:/usr/bin:/bin` };
  const uid = process.getuid?.() ?? 0;
  const work = world.resolver({ git: { environment } }).resolve({ spec: repository.fileUrl }, uid);
  const error = await t.throwsAsync(work, { instanceOf: SvcError });
  t.regex(error.message, /^the tree of file:.* is not an object ID$/);
  t.false(await exists(target));
});

test("invalid objects are rejected, however they are transferred", async (t) => {
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
  t.regex(error.message, /corrupt objects/);
});

// The error message that is made from the last output of a failed git.

const ended = { exitCode: 128, signal: null };

test("for a host that ssh does not find, the error has ssh's message, not git's later one", (t) => {
  const { reason, message } = gitFailure(
    "git@nowhere.invalid:x/y.git",
    [
      "ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
      "fatal: Could not read from remote repository.",
      "Please make sure you have the correct access rights",
    ],
    ended,
  );
  t.is(reason, "unavailable");
  t.is(
    message,
    "git failed with git@nowhere.invalid:x/y.git: ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
  );
});

test("otherwise the error has git's own last message", (t) => {
  const { reason, message } = gitFailure("https://a/b", ["warning: one", "fatal: two", "three"], ended);
  t.deepEqual([reason, message], ["git_failed", "git failed with https://a/b: two"]);
});

test("the event loop is not blocked while the maximum number of refs is read", async (t) => {
  const oid = "a".repeat(40);
  const lines = Array.from({ length: 35_000 }, (_, n) => `${oid}\trefs/tags/v1.${n}.0`);
  const read = readRefs(["ref: refs/heads/main\tHEAD", `${oid}\trefs/heads/main`, ...lines].join("\n"));
  const done = new AbortController();
  void read.then(() => done.abort());
  let turns = 0;
  for (; !done.signal.aborted; turns++) await turn();
  const { tags, newestTag, defaultBranch } = await read;
  t.is(tags.size, 35_000);
  t.like({ newestTag, defaultBranch }, { newestTag: "v1.34999.0", defaultBranch: "main" });
  t.true(turns >= 50, String(turns));
});
