/** Packages from git repositories, and the protections against their content. */
import { execFile } from "node:child_process";
import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
  access,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { SvcError, type ErrorCode } from "../../src/errors.ts";
import {
  gitCommand,
  type GitCommand,
  listRefsArgs,
  localGitCommand,
} from "../../src/packages/git/git-command.ts";
import { gitFailure } from "../../src/packages/git/git-failure.ts";
import { readRefs } from "../../src/packages/git/git-refs.ts";
import { GitServer, redirectingTo } from "../support/git-server.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { minimalManifest, TestRepository } from "./support/repository.ts";
import { installedOf, World } from "./support/world.ts";

keepInMemory();

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test : test.skip;
const selfUid = process.getuid?.() ?? 0;
const games = 5;
const nobody = 65_534;

async function fails(
  t: ExecutionContext,
  work: Promise<unknown>,
  code: ErrorCode,
  message: RegExp,
): Promise<SvcError> {
  const error = await t.throwsAsync(work, { instanceOf: SvcError, message });
  t.is(error.code, code);
  return error;
}

/** `hello` with tags 1.0.0, v1.2.0, v1.10.0 and a pre-release, and a commit after them; created once, copied often. */
const template = { path: "" };

test.before(async () => {
  template.path = await mkdtemp(join(tmpdir(), "svc-hello-"));
  const repository = await TestRepository.create(template.path);
  for (const version of ["1.0.0", "v1.2.0", "v1.10.0", "v2.0.0-rc.1"]) {
    const files = { "svc.yaml": minimalManifest("hello", version.replace("v", "")), "server.js": version };
    await repository.commit(files, version);
  }
  await repository.commit({ "svc.yaml": minimalManifest("hello", "3.0.0-dev"), "server.js": "main" });
});

test.after.always(() => rm(template.path, { recursive: true, force: true }));

async function hello(path: string): Promise<TestRepository> {
  await cp(template.path, path, { recursive: true });
  await chmod(path, 0o755);
  return TestRepository.at(path);
}

test("the stored commit of an app never leads out of the cache", async (t) => {
  await using world = await World.create();
  const repository = await hello(world.path("hello"));
  const other = world.path("other", ".git");
  await mkdir(other, { recursive: true });
  const origin = { kind: "git", url: `file://${repository.path}`, source: "", branch: "", tag: "" } as const;
  const app = { origin: { ...origin, commit: "../../../other/" }, packageId: "hello" };
  const message = /^the commit "\.\.\/\.\.\/\.\.\/other\/" is not an object ID$/;
  await fails(t, world.resolver().resolveUpgrade(app, "", selfUid), "failed_precondition", message);
  await t.notThrowsAsync(access(other));
});

test("over http: the newest tag without pre-releases is found, fetched and checked out", async (t) => {
  await using world = await World.create();
  const repository = await hello(world.path("git", "hello"));
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  const messages: string[] = [];
  const resolved = await resolver.resolve({ spec: `${server.url}/hello/.git` }, selfUid, {
    onProgress: ({ message }) => messages.push(message ?? ""),
  });
  t.deepEqual(resolved.origin, {
    kind: "git",
    url: `${server.url}/hello/.git`,
    source: "",
    branch: "",
    tag: "v1.10.0",
    commit: await repository.git("rev-parse", "v1.10.0^{commit}"),
  });
  t.is(resolved.version, "v1.10.0");
  t.is(resolved.manifest.version, "1.10.0");
  t.true(messages.some((message) => message.startsWith("Fetching v1.10.0")));

  const root = await world.ownedDir("app", selfUid);
  await resolved.exportTo(selfUid, root, "repo");
  t.deepEqual((await readdir(join(root, "repo"))).sort(), ["server.js", "svc.yaml"]);
  t.is(await readFile(join(root, "repo", "server.js"), "utf8"), "v1.10.0");

  const fetches = (): number => server.requests.filter((url) => url.endsWith("/git-upload-pack")).length;
  const listings = fetches();
  await resolver.resolve({ spec: `${server.url}/hello/.git` }, selfUid);
  t.is(fetches() - listings, 1, "refs are listed again, but cached commits are not fetched again");
});

const wishes: [name: string, wish: { branch?: string; tag?: string }, content: string, version: RegExp][] = [
  ["a tag", { tag: "1.0.0" }, "1.0.0", /^1\.0\.0$/],
  ["a tag without its v", { tag: "1.2.0" }, "v1.2.0", /^v1\.2\.0$/],
  ["a pre-release by name", { tag: "v2.0.0-rc.1" }, "v2.0.0-rc.1", /^v2\.0\.0-rc\.1$/],
  ["a branch", { branch: "main" }, "main", /^[0-9a-f]{12}$/],
];

for (const [name, wish, content, version] of wishes) {
  test(`over http: ${name}`, async (t) => {
    await using world = await World.create();
    await hello(world.path("git", "hello"));
    await using server = await GitServer.start(world.path("git"));
    const resolved = await world.resolver().resolve({ spec: `${server.url}/hello/.git`, ...wish }, selfUid);
    t.regex(resolved.version, version);
    const root = await world.ownedDir("app", selfUid);
    await resolved.exportTo(selfUid, root, "repo");
    t.is(await readFile(join(root, "repo", "server.js"), "utf8"), content);
  });
}

test("over http: a missing version is named", async (t) => {
  await using world = await World.create();
  await hello(world.path("git", "hello"));
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  const spec = `${server.url}/hello/.git`;
  await fails(
    t,
    resolver.resolve({ spec, tag: "v9" }, selfUid),
    "not_found",
    /no tag "v9" in .*; its tags: /,
  );
  await fails(t, resolver.resolve({ spec, branch: "dev" }, selfUid), "not_found", /no branch "dev".*main/);
  const taken = resolver.resolve({ spec, branch: "v1.2.0" }, selfUid);
  await fails(t, taken, "not_found", /v1\.2\.0 is a tag, so use --version v1\.2\.0 or .*#v1\.2\.0$/);
  const atTag = resolver.resolve({ spec: `${server.url}/none@v1.0.0` }, selfUid);
  await fails(t, atTag, "failed_precondition", /; for a tag or a branch: .*\/none#v1\.0\.0$/);
  for (const [address, meant] of [
    ["none/tree/main/apps/web", "none#main:apps/web"],
    ["group/none/-/tree/v1.0/web/", "group/none#v1.0:web"],
    ["me/none/src/branch/main", "me/none#main"],
  ] as const) {
    const inBrowser = resolver.resolve({ spec: `${server.url}/${address}` }, selfUid);
    const message = `; for this directory of the repository: ${server.url}/${meant}`;
    await fails(t, inBrowser, "failed_precondition", new RegExp(`${message}$`));
  }
  for (const [file, advice] of [
    ["docker-compose.yml", /; for a compose file, download it, and run: svc install \.\/FILE$/],
    ["v1.0.tar.gz", /; for an archive, unpack it, and run: svc install \.\/DIR$/],
  ] as const)
    await fails(
      t,
      resolver.resolve({ spec: `${server.url}/${file}` }, selfUid),
      "failed_precondition",
      advice,
    );
  const gone = resolver.resolve({ spec: `${server.url}/none.git` }, selfUid);
  await fails(t, gone, "failed_precondition", /there is no git repository at/);
  const nobodyThere = resolver.resolve({ spec: "http://127.0.0.1:1/a.git" }, selfUid);
  await fails(t, nobodyThere, "unavailable", /git cannot read http:\/\/127\.0\.0\.1:1\/a\.git/);
});

test("a repository that is not a package is rejected", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("plain"));
  await repository.commit({ "README.md": "hi" });
  const plain = world.resolver().resolve({ spec: repository.fileUrl }, selfUid);
  await fails(t, plain, "invalid_argument", / is not a package: it has no svc\.yaml; /);

  await symlink("/etc/passwd", world.path("plain", "svc.yaml"));
  await repository.commit({});
  const linked = world.resolver().resolve({ spec: repository.fileUrl }, selfUid);
  await fails(t, linked, "invalid_argument", /svc\.yaml in .* is not a regular file/);
});

test("a server that stalls times out, and the caller can cancel", async (t) => {
  await using world = await World.create();
  await using server = await GitServer.start(world.path());
  server.override = () => true;
  const slow = world.resolver({ git: { limits: { listTimeoutMs: 300 } } });
  await fails(
    t,
    slow.resolve({ spec: `${server.url}/a` }, selfUid),
    "deadline_exceeded",
    /did not finish within/,
  );
  const stop = new AbortController();
  const waiting = world.resolver().resolve({ spec: `${server.url}/a` }, selfUid, { signal: stop.signal });
  setTimeout(() => stop.abort(), 100);
  await fails(t, waiting, "canceled", /canceled/);
});

test("an interrupted fetch leaves nothing that breaks a later one", async (t) => {
  await using world = await World.create();
  await hello(world.path("git", "hello"));
  await using server = await GitServer.start(world.path("git"));
  const spec = `${server.url}/hello/.git`;
  const resolver = world.resolver();
  const stop = new AbortController();
  server.override = (request) => {
    if (request.method !== "POST" || !(request.url ?? "").includes("git-upload-pack")) return false;
    if (server.requests.filter((url) => url.endsWith("/git-upload-pack")).length < 2) return false;
    stop.abort();
    return true;
  };
  await fails(t, resolver.resolve({ spec }, selfUid, { signal: stop.signal }), "canceled", /canceled/);
  server.override = () => false;
  t.is((await resolver.resolve({ spec }, selfUid)).version, "v1.10.0");
  const [key = ""] = await readdir(world.path("cache", "git"));
  t.true((await readdir(world.path("cache", "git", key))).every((name) => name.endsWith(".git")));
});

test("a damaged cache is rebuilt", async (t) => {
  await using world = await World.create();
  const repository = await hello(world.path("hello"));
  const spec = repository.fileUrl;
  await world.resolver().resolve({ spec }, selfUid);
  const [key = ""] = await readdir(world.path("cache", "git"));
  const [commit = ""] = await readdir(world.path("cache", "git", key));
  const packs = world.path("cache", "git", key, commit, "objects", "pack");
  for (const name of await readdir(packs)) {
    await chmod(join(packs, name), 0o600);
    await writeFile(join(packs, name), "");
  }
  t.is((await world.resolver().resolve({ spec }, selfUid)).version, "v1.10.0");
});

test("many concurrent fetches by two daemons that share a cache succeed", async (t) => {
  await using world = await World.create();
  await hello(world.path("git", "hello"));
  await using server = await GitServer.start(world.path("git"));
  const spec = `${server.url}/hello/.git`;
  const all = await Promise.all(
    [world.resolver(), world.resolver()].flatMap((resolver) =>
      Array.from({ length: 4 }, () => resolver.resolve({ spec }, selfUid)),
    ),
  );
  t.true(all.every((resolved) => resolved.version === "v1.10.0"));
});

test("redirects of a git server on this host are not followed, because the daemon would send the requests as root", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "hello"));
  await repository.commit({ "svc.yaml": minimalManifest("hello", "1.0.0") });
  await using target = await GitServer.start(world.path("git"));
  await using server = await GitServer.start(world.path("git"), redirectingTo(target.url));
  const work = world.resolver().resolve({ spec: `${server.url}/hello/.git` }, selfUid);
  await fails(t, work, "failed_precondition", /returned error: 302/);
  t.deepEqual(target.requests, []);
});

test("a repository above the size limit is not fetched completely", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "big"));
  const noise = Array.from({ length: 60_000 }, () => Math.random().toString(36)).join("");
  await repository.commit({ "svc.yaml": minimalManifest("big", "1"), noise });
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver({ git: { limits: { maxFetchBytes: 100_000 } } });
  const message = /is too large \(limit 100000 bytes\)/;
  await fails(
    t,
    resolver.resolve({ spec: `${server.url}/big/.git` }, selfUid),
    "failed_precondition",
    message,
  );
  await fails(t, resolver.resolve({ spec: repository.fileUrl }, selfUid), "failed_precondition", message);
});

test("licenses are shown with the digest of the complete text", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("hello"));
  const long = "a".repeat(64 * 1024 - 1) + "é" + "b".repeat(100);
  await repository.commit({
    "svc.yaml": minimalManifest("hello", "1.0.0"),
    LICENSE: "Do what you want",
    "COPYING.md": long,
    "docs/LICENSE": "not at the root",
    "eula.txt": "Give me your soul",
  });
  const { licenses } = await world.resolver().resolve({ spec: repository.fileUrl }, selfUid);
  t.deepEqual(
    licenses.map(({ name }) => name),
    ["COPYING.md", "LICENSE", "eula.txt"],
  );
  t.is(licenses[0]?.text, "a".repeat(64 * 1024 - 1), "a split character is omitted");
  const { stdout } = await promisify(execFile)("sha256sum", [world.path("hello", "COPYING.md")]);
  t.is(licenses[0]?.sha256, stdout.slice(0, 64));
});

test("upgrades: the newest tag, a tracked branch, a requested tag, never backwards by default", async (t) => {
  await using world = await World.create();
  const repository = await hello(world.path("hello"));
  const resolver = world.resolver();
  const caller = selfUid;
  const spec = repository.fileUrl;
  const old = await resolver.resolve({ spec, tag: "1.0.0" }, caller);
  t.is((await resolver.resolveUpgrade(installedOf(old), "", caller)).version, "v1.10.0");
  t.is((await resolver.resolveUpgrade(installedOf(old), "1.2.0", caller)).version, "v1.2.0");
  const ahead = await resolver.resolve({ spec, tag: "v2.0.0-rc.1" }, caller);
  t.is((await resolver.resolveUpgrade(installedOf(ahead), "", caller)).origin.commit, ahead.origin.commit);
  const tracked = await resolver.resolve({ spec, branch: "main" }, caller);
  t.is(
    (await resolver.resolveUpgrade(installedOf(tracked), "", caller)).origin.commit,
    tracked.origin.commit,
  );
  const commit = await repository.commit({ "server.js": "newer" });
  const next = await resolver.resolveUpgrade(installedOf(tracked), "", caller);
  t.like(next.origin, { branch: "main", tag: "", commit });
  await fails(
    t,
    resolver.resolveUpgrade(installedOf(old), "--x", caller),
    "invalid_argument",
    /is not a valid tag name/,
  );
  await fails(t, resolver.resolveUpgrade(installedOf(old), "9.9.9", caller), "not_found", /no tag "9\.9\.9"/);
});

test("export attributes of a repository do not change what is exported", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("hello"));
  await repository.commit({
    "svc.yaml": minimalManifest("hello", "1.0.0"),
    ".gitattributes": "secret.txt export-ignore\nstamp.txt export-subst\n* filter=evil\n",
    "secret.txt": "here",
    "stamp.txt": "$Format:%H$",
  });
  const resolved = await world.resolver().resolve({ spec: repository.fileUrl }, selfUid);
  const root = await world.ownedDir("app", selfUid);
  await resolved.exportTo(selfUid, root, "repo");
  t.is(await readFile(join(root, "repo", "secret.txt"), "utf8"), "here");
  t.is(await readFile(join(root, "repo", "stamp.txt"), "utf8"), "$Format:%H$");
});

rootTest("(needs root) nothing that a user's checkout configures runs as root, or at all", async (t) => {
  await using world = await World.create();
  const canary = world.path("canary");
  await mkdir(canary);
  await chmod(canary, 0o777);
  const repository = await hello(world.path("home", "hello"));
  const script = world.path("home", "evil.sh");
  await writeFile(script, `#!/bin/sh\nid -u >> ${canary}/ran\ncat\n`);
  await chmod(script, 0o755);
  const configuration: [string, string][] = [
    ["core.fsmonitor", script],
    ["core.sshCommand", script],
    ["core.hooksPath", join(repository.path, ".git", "hooks")],
    ["core.pager", script],
    ["filter.evil.smudge", script],
    ["filter.evil.clean", script],
    ["filter.evil.process", script],
    ["uploadpack.packObjectsHook", script],
    ["credential.helper", script],
    ["tar.tar.command", script],
    ["diff.external", script],
    ["gc.auto", "1"],
  ];
  for (const [key, value] of configuration) await repository.git("config", key, value);
  for (const hook of ["post-checkout", "pre-auto-gc", "reference-transaction", "fsmonitor-watchman"]) {
    const path = join(repository.path, ".git", "hooks", hook);
    await mkdir(join(path, ".."), { recursive: true });
    await writeFile(path, `#!/bin/sh\nid -u >> ${canary}/ran\n`);
    await chmod(path, 0o755);
  }
  await writeFile(join(repository.path, ".gitattributes"), "* filter=evil\n");
  await writeFile(
    join(repository.path, ".gitmodules"),
    `[submodule "x"]\n\tpath = x\n\turl = ext::${script}\n`,
  );
  await repository.giveTo(games);

  const resolver = world.resolver();
  const resolved = await resolver.resolve({ spec: repository.fileUrl }, games);
  const root = await world.ownedDir("app", games);
  await resolved.exportTo(games, root, "repo");
  t.is((await stat(join(root, "repo", "server.js"))).uid, games);

  // Root uses the same repository: git itself rejects it, because it belongs to another user.
  const asRoot = world.resolver().resolve({ spec: repository.fileUrl }, 0);
  await fails(
    t,
    asRoot,
    "permission_denied",
    /belongs to another user.* to install it as a directory, leave out file:\/\//,
  );

  // The same configuration in a directory package, which is copied without its history.
  const directory = await resolver.resolve({ spec: repository.path }, games);
  const second = await world.ownedDir("app2", games);
  await directory.exportTo(games, second, "repo");
  t.false((await readdir(join(second, "repo"))).includes(".git"));

  const ran = await readFile(join(canary, "ran"), "utf8").catch(() => "");
  t.is(ran, "", "nothing ran as any user");
});

rootTest("(needs root) users cannot install what they cannot read", async (t) => {
  await using world = await World.create();
  const repository = await hello(world.path("secret", "hello"));
  await chmod(world.path("secret"), 0o700);
  const resolver = world.resolver();
  t.is((await resolver.resolve({ spec: repository.fileUrl }, 0)).version, "v1.10.0");
  const byUrl = resolver.resolve({ spec: repository.fileUrl }, games);
  await t.throwsAsync(byUrl, { instanceOf: SvcError, message: /hello/ });
  const byPath = resolver.resolve({ spec: repository.path }, games);
  await fails(t, byPath, "permission_denied", /./);

  // A manifest that links to a file only root may read is rejected, and its content is not revealed.
  const planted = world.path("planted");
  await mkdir(planted);
  await symlink("/etc/shadow", join(planted, "svc.yaml"));
  const link = await t.throwsAsync(resolver.resolve({ spec: planted }, games), {
    instanceOf: SvcError,
  });
  t.notRegex(link.message, /root:/);
});

rootTest(
  "(needs root) a user's directory is copied for another owner, read by one and written by the other",
  async (t) => {
    await using world = await World.create();
    const source = world.path("package");
    await mkdir(join(source, ".git"), { recursive: true });
    await writeFile(join(source, "svc.yaml"), minimalManifest("mine", "0.1.0"));
    await writeFile(join(source, ".git", "config"), "x");
    await writeFile(join(source, "server.js"), "s");
    const resolved = await world.resolver().resolve({ spec: source }, games);
    t.is(resolved.version, "0.1.0");
    t.like(resolved.origin, { kind: "directory", url: source, commit: "" });
    const root = await world.ownedDir("app", nobody);
    await resolved.exportTo(nobody, root, "repo");
    t.deepEqual((await readdir(join(root, "repo"))).sort(), ["server.js", "svc.yaml"]);
    t.is((await stat(join(root, "repo", "server.js"))).uid, nobody);

    await writeFile(join(source, "svc.yaml"), minimalManifest("mine", "0.2.0"));
    const upgraded = await world.resolver().resolveUpgrade(installedOf(resolved), "", games);
    t.is(upgraded.version, "0.2.0", "a directory is read again");
  },
);

// Each of git's protections separately, with the redundant ones disabled.

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
      "ssh: Could not resolve hostname nowhere.invalid: Name or service not known\r",
      "fatal: Could not read from remote repository.",
      "Please make sure you have the correct access rights",
    ],
    ended,
  );
  t.is(reason, "unavailable");
  t.is(
    message,
    "git cannot read git@nowhere.invalid:x/y.git: ssh: Could not resolve hostname nowhere.invalid: Name or service not known" +
      "; check the address and the network",
  );
});

test("without a message of ssh, the error has git's own last message", (t) => {
  const { reason, message } = gitFailure("https://a/b", ["warning: one", "fatal: two", "three"], ended);
  t.deepEqual([reason, message], ["git_failed", "git cannot read https://a/b: two"]);
});

test("the event loop is not blocked while the maximum number of refs is read", async (t) => {
  const oid = "a".repeat(40);
  const lines = Array.from({ length: 35_000 }, (_, n) => `${oid}\trefs/tags/v1.${n}.0`);
  const read = readRefs(["ref: refs/heads/main\tHEAD", `${oid}\trefs/heads/main`, ...lines].join("\n"));
  const done = new AbortController();
  void read.then(() => done.abort());
  let turns = 0;
  for (; !done.signal.aborted; turns++) await turn();
  const { tags, newestTags, defaultBranch } = await read;
  t.is(tags.size, 35_000);
  t.deepEqual([newestTags.of("."), defaultBranch], ["v1.34999.0", "main"]);
  t.true(turns >= 50, String(turns));
});
