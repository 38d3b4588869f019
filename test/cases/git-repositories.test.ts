/** Git repositories as people publish them: tags, branches, directories, submodules and files in Git LFS. */
import { randomBytes } from "node:crypto";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../src/errors.ts";
import { haveSameOwner, localAddressOf, parseGitUrl, type GitUrl } from "../../src/packages/git/git-url.ts";
import { installedOf, World } from "../packages/support/world.ts";
import { minimalManifest, TestRepository } from "../packages/support/repository.ts";
import { askingFor, GitServer } from "../support/git-server.ts";
import { keepInMemory } from "../support/in-memory.ts";

keepInMemory();

const selfUid = process.getuid?.() ?? 0;
/** Main has one commit after the tags. */
const untagged = /^[0-9a-f]{12}$/;

async function tagged(world: World, name: string, tags: readonly string[]): Promise<TestRepository> {
  const repository = await TestRepository.create(world.path("git", name));
  for (const tag of tags) await repository.commit({ "svc.yaml": minimalManifest("app", "1"), tag }, tag);
  await repository.commit({ "web/svc.yaml": minimalManifest("web", "1"), tag: "none" });
  return repository;
}

const tagForms: readonly (readonly [tags: string, newest: string | RegExp])[] = [
  ["v1.0 v1.1 v1.10", "v1.10"],
  ["v1 v2", "v2"],
  ["v1.9 v2.0.0 v2", "v2.0.0"],
  ["release-1.2.3 release-1.3.0", "release-1.3.0"],
  ["REL_16_1 REL_16_2", "REL_16_2"],
  ["web/v1.0.0 web/v1.1.0", "web/v1.1.0"],
  ["2025.09.30 2025.10.01", "2025.10.01"],
  ["2025.9.30 2025.10.1", "2025.10.1"],
  ["2025.11.12 2025.12.08", "2025.12.08"],
  ["V1.0.0 V1.1.0", "V1.1.0"],
  ["1.0.0.1 1.0.0.2", "1.0.0.2"],
  ["@acme/web@1.4.0 @acme/web@1.5.0", "@acme/web@1.5.0"],
  ["v1.2.3+5 v1.2.3+6", "v1.2.3+6"],
  ["v1.9.0 v2.0.0-rc.1", "v1.9.0"],
  ["v1.0.0 chart-9.0.0", "v1.0.0"],
  ["web-v1.2.0 api-v3.0.0", untagged],
  ["rc-1.2.0 nightly stable 20250930", untagged],
];

for (const [tags, newest] of tagForms) {
  const selected = typeof newest === "string" ? `the tag ${newest}` : "the default branch";
  test(`a repository with the tags ${tags} is installed from ${selected}`, async (t) => {
    await using world = await World.create();
    const repository = await tagged(world, "app", tags.split(" "));
    const resolved = await world.resolver().resolve({ spec: repository.fileUrl }, selfUid);
    if (typeof newest === "string") t.is(resolved.version, newest);
    else t.regex(resolved.version, newest);
    t.is(resolved.origin.branch, typeof newest === "string" ? "" : "main");
  });
}

const names = {
  tags: ["@acme/web@1.4.0", "v1.0.0(lts)", "release-1.2.3"],
  branches: ["fix(ui)", "größe", "#12-fix", "feature/a+b=c", "日本語"],
};

test("branches and tags with any name that git allows can be installed, over http too", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "app"));
  for (const name of [...names.tags, ...names.branches]) {
    await repository.git("switch", "--quiet", "--orphan", "next");
    await repository.commit({ "svc.yaml": minimalManifest("app", "1"), name });
    if (names.tags.includes(name)) await repository.git("tag", name);
    else await repository.git("branch", name);
    await repository.git("switch", "--quiet", "--detach");
    await repository.git("branch", "-D", "next");
  }
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  for (const [at, spec] of [repository.fileUrl, `${server.url}/app/.git`].entries()) {
    for (const [kind, list] of Object.entries(names)) {
      for (const [index, name] of list.entries()) {
        const wish = kind === "tags" ? { tag: name } : { branch: name };
        await using resolved = await resolver.resolve({ spec, ...wish }, selfUid);
        const root = await world.ownedDir(`${at}-${kind}-${index}`, selfUid);
        await resolved.exportTo(selfUid, root, "repo");
        t.is(await readFile(join(root, "repo", "name"), "utf8"), name);
      }
    }
  }
});

test("an upgrade finds the newest tag with the prefix of the installed one", async (t) => {
  await using world = await World.create();
  const tags = ["v1.0", "@acme/web@1.4.0", "@acme/api@9.0.0"];
  const repository = await tagged(world, "app", tags);
  const resolver = world.resolver();
  const newer = async (tag: string): Promise<string | undefined> =>
    resolver.newerVersion(
      installedOf(await resolver.resolve({ spec: repository.fileUrl, tag }, selfUid)),
      selfUid,
    );
  t.is(await newer("v1.0"), undefined);
  t.is(await newer("@acme/web@1.4.0"), undefined);
  await repository.commit({ tag: "v1.1" }, "v1.1");
  await repository.commit({ tag: "web" }, "@acme/web@1.10.0");
  t.is(await newer("v1.0"), "v1.1");
  t.is(await newer("@acme/web@1.4.0"), "@acme/web@1.10.0");
});

test("URL#ref:dir selects a branch or a tag, and a directory, which upgrades keep", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "app"));
  const web = (text: string) => ({
    "deploy/web/svc.yaml": minimalManifest("web", "1"),
    "deploy/web/text": text,
  });
  await repository.commit(web("1.0"), "web-v1.0");
  await repository.commit({ other: "x" }, "api-v3.0");
  await repository.commit(web("main"));
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  for (const url of [repository.fileUrl, `${server.url}/app/.git`]) {
    const tag = await resolver.resolve({ spec: `${url}#web-v1.0:deploy/web` }, selfUid);
    t.like(tag.origin, { url, tag: "web-v1.0", branch: "", directory: "deploy/web", source: "" });
    const branch = await resolver.resolve({ spec: `${url}#main:/deploy/web/` }, selfUid);
    t.like(branch.origin, { tag: "", branch: "main", directory: "deploy/web" });
    const newest = await resolver.resolve({ spec: `${url}#:deploy/web` }, selfUid);
    t.is(newest.version, "web-v1.0", "the prefix that the directory names");
    const root = await world.ownedDir(`dir-${url.length}`, selfUid);
    await newest.exportTo(selfUid, root, "repo");
    t.deepEqual((await readdir(join(root, "repo"))).sort(), ["svc.yaml", "text"]);
    await rm(root, { recursive: true });
    await t.throwsAsync(resolver.resolve({ spec: `${url}#none:deploy/web` }, selfUid), {
      message: /no tag "none" in /,
    });
    await t.throwsAsync(resolver.resolve({ spec: `${url}#main:deploy/api` }, selfUid), {
      message: /there is no directory "deploy\/api" in /,
    });
  }
  const installed = await resolver.resolve({ spec: `${repository.fileUrl}#web-v1.0:deploy/web` }, selfUid);
  t.is(await resolver.newerVersion(installedOf(installed), selfUid), undefined);
  await repository.commit(web("1.1"), "web-v1.1");
  t.is(await resolver.newerVersion(installedOf(installed), selfUid), "web-v1.1");
  const upgraded = await resolver.resolveUpgrade(installedOf(installed), "", selfUid);
  t.like(upgraded.origin, { tag: "web-v1.1", directory: "deploy/web" });
});

async function withSubmodules(
  world: World,
  noiseBytes = 0,
): Promise<{ outer: TestRepository; theme: TestRepository }> {
  const font = await TestRepository.create(world.path("git", "font"));
  const noise = (): string => randomBytes(noiseBytes).toString("latin1");
  await font.commit({ glyphs: "abc", noise: noise() });
  const theme = await TestRepository.create(world.path("git", "theme"));
  await theme.commit({ "index.html": "theme", noise: noise() });
  await addSubmodule(theme, "../../font/.git", "parts/font", font);
  const outer = await TestRepository.create(world.path("git", "outer"));
  await outer.commit({
    "svc.yaml": minimalManifest("outer", "1"),
    "web/svc.yaml": minimalManifest("web", "1"),
  });
  await addSubmodule(outer, "../../theme/.git", "web/theme", theme);
  return { outer, theme };
}

/** Adds the current commit of `module`, without a clone. */
async function addSubmodule(
  repository: TestRepository,
  url: string,
  path: string,
  module: TestRepository,
): Promise<void> {
  await repository.git("config", "--file", ".gitmodules", `submodule.${path}.path`, path);
  await repository.git("config", "--file", ".gitmodules", `submodule.${path}.url`, url);
  const commit = await module.git("rev-parse", "HEAD");
  await repository.git("update-index", "--add", "--cacheinfo", `160000,${commit},${path}`);
  await repository.git("add", ".gitmodules");
  await repository.git("commit", "--quiet", "--message", "submodule");
}

test("submodules and their submodules are fetched with the commits that the repository names", async (t) => {
  await using world = await World.create();
  const { outer, theme } = await withSubmodules(world);
  await theme.commit({ "index.html": "newer than the submodule" });
  await using server = await GitServer.start(world.path("git"));
  for (const [at, spec] of [
    `${outer.fileUrl}/.git`,
    `${server.url}/outer/.git`,
    `${server.url}/outer/.git#:web`,
  ].entries()) {
    const resolved = await world.resolver().resolve({ spec }, selfUid);
    const root = await world.ownedDir(`app-${at}`, selfUid);
    await resolved.exportTo(selfUid, root, "repo");
    const themeDir = join(root, "repo", at === 2 ? "theme" : "web/theme");
    t.is(await readFile(join(themeDir, "index.html"), "utf8"), "theme");
    t.is(await readFile(join(themeDir, "parts/font/glyphs"), "utf8"), "abc");
  }
});

for (const [title, url, isShown] of [
  ["the same owner", "../../me/private/.git", true],
  ["another owner", "../../victim/private/.git", false],
  ["another owner, behind a submodule of that owner", "../../victim/public/.git", false],
] as const) {
  test(`a submodule of ${title} is fetched ${isShown ? "with" : "without"} the caller's login`, async (t) => {
    await using world = await World.create();
    const modules = new Map<string, TestRepository>();
    for (const path of ["me/private", "victim/private", "victim/public"]) {
      const module = await TestRepository.create(world.path("git", path));
      await module.commit({ file: path });
      modules.set(path, module);
    }
    const [mine, theirs, open] = [...modules.values()] as [TestRepository, TestRepository, TestRepository];
    await addSubmodule(open, "../../private/.git", "inner", theirs);
    const outer = await TestRepository.create(world.path("git", "me/outer"));
    await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
    const module = url.includes("public") ? open : isShown ? mine : theirs;
    await addSubmodule(outer, url.replace("../../", "../../../"), "theme", module);
    const login = { username: "ann", secret: "sung" };
    const isPrivate = askingFor({ username: login.username, password: login.secret });
    await using server = await GitServer.start(world.path("git"), (request, response) =>
      request.url?.includes("/private/") === true ? isPrivate(request, response) : false,
    );
    const resolver = world.resolver({ git: { login: () => ({ ...login, scope: "ann" }) } });
    const resolving = resolver.resolve({ spec: `${server.url}/me/outer/.git` }, selfUid);
    if (isShown) await resolving;
    else await t.throwsAsync(resolving, { message: /private.* requires other credentials than yours/ });
    const shown = server.requests.filter((path, at) => path.includes("/private/") && server.shown[at] !== "");
    t.is(shown.length > 0, isShown);
  });
}

test("a submodule of another owner over ssh is rejected, because ssh uses the caller's key", async (t) => {
  await using world = await World.create();
  const outer = await TestRepository.create(world.path("git", "me/outer"));
  await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
  await addSubmodule(outer, "ssh://git@git.invalid/victim/private.git", "theme", outer);
  await using server = await GitServer.start(world.path("git"));
  const { message } = await rejection(t, world, `${server.url}/me/outer/.git`);
  t.regex(message, /^the submodule ssh:.* belongs to another host or owner .*; use https$/);
});

const owners: readonly (readonly [one: string, other: string, areSame: boolean])[] = [
  ["https://a.example/me/x", "https://A.example/me/y/z", true],
  ["https://a.example/me/x", "git@a.example:me/y.git", true],
  ["https://a.example/x", "https://a.example/y", true],
  ["ssh://git@a.example/me/x", "ssh://git@a.example/you/x", false],
  ["https://a.example/me/x", "https://a.example:8443/me/x", false],
  ["https://a.example/me/x", "https://b.example/me/x", false],
  ["[git@a.example:22]:me/x", "ssh://git@a.example:22/me/y", true],
  ["https://a.example/scm/me/x", "https://a.example/scm/you/x", false],
  ["https://a.example/scm/me/x", "https://a.example/scm/me/y", true],
  ["git@ssh.dev.azure.com:v3/me/p/x", "git@ssh.dev.azure.com:v3/you/p/x", false],
  ["https://a.example/git/x", "https://a.example/git/y", true],
];
test("the owner of a repository is the first name of its path, without a server's prefix", (t) => {
  const parsed = (text: string): GitUrl => {
    const result = parseGitUrl(text);
    if ("problem" in result) throw new Error(result.problem);
    return result.gitUrl;
  };
  for (const [one, other, areSame] of owners)
    t.is(haveSameOwner(parsed(one), parsed(other)), areSame, `${one} ${other}`);
});

const rejectedUrls: readonly (readonly [title: string, url: string, message: RegExp])[] = [
  ["of a helper program", "ext::sh", /names a helper program/],
  ["with a password", "https://me:hunter2@host/a", /contains credentials/],
  ["with an escaped path to another owner", "https://host/me/%2e%2E/you/a", /has "\.\." in its path/],
  ["with escaped slashes", "https://host/me/..%2Fyou/a", /has "\.\." in its path/],
  ["with escaped backslashes", "https://host/me/x%5c..%5cyou/a", /has "\.\." in its path/],
  ["with a path that is escaped twice", "ssh://git@host/me/%252e%252e/you/a", /has "\.\." in its path/],
  ["relative, with an escaped path", "../%2e%2e/you/a", /has "\.\." in its path/],
  ["of a repository on this host", "file:///srv/private", /is a repository of this host/],
  ["above its host", "../../../../x", /is above the host|does not name a repository/],
];

for (const [title, url, message] of rejectedUrls) {
  test(`a submodule with the URL ${title} is rejected before the install`, async (t) => {
    await using world = await World.create();
    const outer = await TestRepository.create(world.path("git", "outer"));
    await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
    await addSubmodule(outer, url, "theme", outer);
    await using server = await GitServer.start(world.path("git"));
    const error = await rejection(t, world, `${server.url}/outer/.git`);
    t.regex(error.message, /^the submodule theme of http:.* cannot be fetched: its URL /);
    t.regex(error.message, message);
    t.notRegex(error.message, /hunter2/);
  });
}

test("a submodule at a port of this host is rejected in a repository from elsewhere", async (t) => {
  await using world = await World.create();
  const outer = await TestRepository.create(world.path("git", "outer"));
  await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
  await addSubmodule(outer, "http://127.0.0.1:1/x.git", "theme", outer);
  const { message } = await rejection(t, world, outer.fileUrl);
  t.regex(
    message,
    /theme of file:.* its URL "http:\/\/127\.0\.0\.1:1\/x\.git" is a repository of this host$/,
  );
  for (const [url, address] of [
    ["https://127.0.0.1/x", "https 127.0.0.1 "],
    ["https://127.1:81/x", "https 127.1 81"],
    ["https://0x7f.1/x", "https 0x7f.1 "],
    ["https://2130706433/x", "https 2130706433 "],
    ["https://0.0.0.0/x", "https 0.0.0.0 "],
    ["https://[::]/x", "https [::] "],
    ["https://[::ffff:127.0.0.1]/x", "https [::ffff:127.0.0.1] "],
    ["https://[0:0::1]/x", "https [0:0::1] "],
    ["https://a.localhost/x", "https a.localhost "],
    ["https://ip6-localhost/x", "https ip6-localhost "],
    ["ssh://git@localhost:22/x", "ssh localhost 22"],
    ["git@localhost:x", "ssh localhost "],
    ["git@[::1]:x", "ssh [::1] "],
    ["[git@127.0.0.1:22]:x", "ssh 127.0.0.1 22"],
    ["[localhost:22]:x", "ssh localhost 22"],
    ["https://[::1]:8/x", "https [::1] 8"],
    ["file:///x", "directory"],
    ["https://example.org/localhost", ""],
    ["https://127.0.0.1.example.org/x", ""],
    ["https://[2001:db8::1]/x", ""],
    ["git@example.org:localhost", ""],
  ] as const) {
    const parsed = parseGitUrl(url);
    t.is("gitUrl" in parsed ? localAddressOf(parsed.gitUrl) : parsed.problem, address, url);
  }
});

test("a submodule at another port of this host is rejected in a repository of this host", async (t) => {
  await using world = await World.create();
  const outer = await TestRepository.create(world.path("git", "outer"));
  await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
  await addSubmodule(outer, "http://127.0.0.1:1/x.git", "theme", outer);
  await using server = await GitServer.start(world.path("git"));
  const { message } = await rejection(t, world, `${server.url}/outer/.git`);
  t.regex(message, /its URL "http:\/\/127\.0\.0\.1:1\/x\.git" is a repository of this host$/);
});

test("a path of 100,000 bytes in a package with files in Git LFS is rejected", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("outer"));
  await repository.commit({
    "svc.yaml": minimalManifest("outer", "1"),
    ".gitattributes": "*.bin filter=lfs\n",
  });
  const file = await repository.git("rev-parse", "HEAD:svc.yaml");
  await repository.git("update-index", "--add", "--cacheinfo", `100644,${file},${"x".repeat(100_000)}`);
  await repository.git("commit", "--quiet", "--message", "long");
  const { message } = await rejection(t, world, repository.fileUrl);
  // Git 2.45 and later reject it themselves.
  t.regex(message, /has a file whose path is longer than 16384 bytes$|largePathname/);
});

test("the list of a repository's submodules cannot include files of this host", async (t) => {
  await using world = await World.create();
  const outer = await TestRepository.create(world.path("git", "outer"));
  await outer.commit({ "svc.yaml": minimalManifest("outer", "1") });
  await addSubmodule(outer, "https://example.org/x", "theme", outer);
  const ofHost = world.path("host.conf");
  await writeFile(ofHost, '[submodule "theme"]\n\tpath = theme\n\turl = ext::secret\n');
  await writeFile(join(outer.path, ".gitmodules"), `[include]\n\tpath = ${ofHost}\n`);
  await outer.git("add", ".gitmodules");
  await outer.git("commit", "--quiet", "--message", "include");
  const { manifest } = await world.resolver().resolve({ spec: outer.fileUrl }, selfUid);
  t.is(manifest.id, "outer");
});

test("the limit of submodules counts submodules of submodules", async (t) => {
  await using world = await World.create();
  const { outer, theme } = await withSubmodules(world);
  // Each of them has one submodule.
  for (let at = 0; at < 10; at++) await addSubmodule(outer, "../../theme/.git", `sub-${at}`, theme);
  const error = await rejection(t, world, `${outer.fileUrl}/.git`);
  t.regex(error.message, /outer\/\.git has more than 20 submodules$/);
});

test("the limits of size apply to a repository and its submodules together", async (t) => {
  await using world = await World.create();
  const { outer } = await withSubmodules(world, 40_000);
  const resolve = (limits: object) =>
    world.resolver({ git: { limits } }).resolve({ spec: `${outer.fileUrl}/.git` }, selfUid);
  // Each of the three commits is smaller.
  await t.throwsAsync(resolve({ maxFetchBytes: 100_000 }), { message: /and its submodules are too large/ });
  for (const limits of [{ maxExportEntries: 9 }, { maxExportBytes: 100_000 }]) {
    const resolved = await resolve(limits);
    const root = await world.ownedDir(`limited-${Object.keys(limits)[0]}`, selfUid);
    await t.throwsAsync(resolved.exportTo(selfUid, root, "repo"), {
      message: /has more than 9 files and directories|are too large \(limit 100000 bytes\)/,
    });
  }
});

test("a package with files in Git LFS is rejected with their paths", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("outer"));
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"7".repeat(64)}\nsize 12345\n`;
  const attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n";
  const files = { "svc.yaml": minimalManifest("outer", "1"), "notes.txt": pointer };
  await repository.commit({ ...files, ".gitattributes": attributes, "web/svc.yaml": files["svc.yaml"] });
  await repository.git("rm", "--quiet", "notes.txt");
  await repository.commit({ "a/model.bin": pointer, "b.bin": pointer });
  const error = await rejection(t, world, repository.fileUrl);
  t.is(error.reason, "package_invalid");
  t.regex(
    error.message,
    /^svc does not fetch files of Git LFS, and file:.*outer has: a\/model\.bin, b\.bin; clone it with git lfs, and install the directory/,
  );
  const web = await world.resolver().resolve({ spec: `${repository.fileUrl}#:web` }, selfUid);
  t.is(web.manifest.id, "outer", "only the directory's own files count");
});

async function rejection(t: ExecutionContext, world: World, spec: string): Promise<SvcError> {
  return (await t.throwsAsync(world.resolver().resolve({ spec }, selfUid), {
    instanceOf: SvcError,
  })) as SvcError;
}
