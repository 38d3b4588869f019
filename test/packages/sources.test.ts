import { once } from "node:events";
import { mkdir, readFile, readdir, utimes, writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { GitServer } from "../support/git-server.ts";
import { minimalManifest, TestRepository } from "./support/repository.ts";
import { installedOf, World } from "./support/world.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { writeCertificate } from "../support/s3-server.ts";
import { fetchIndex } from "../../src/packages/sources/fetch-index.ts";
import { removeOldest } from "../../src/packages/sources/source-index-loader.ts";
import fc from "fast-check";
import { redactUrls } from "../../src/packages/git/git-url.ts";
import { isRefName, parseSpec, type PackageRequest, type PackageSpec } from "../../src/packages/spec.ts";

keepInMemory();

const caller = process.getuid?.() ?? 0;

async function writePackage(directory: string, id: string, version: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, "svc.yaml"), minimalManifest(id, version));
}

async function directorySource(path: string, index: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "index.yaml"), index);
}

test("a directory source has packages beside the index, and repositories", async (t) => {
  await using world = await World.create();
  await directorySource(
    world.path("main"),
    `packages:\n  hello: {directory: apps/hello}\n  remote: {repo: "file://${world.path("remote")}", name: Remote App}\n`,
  );
  await writePackage(world.path("main", "apps", "hello"), "hello", "1.0.0");
  const repository = await TestRepository.create(world.path("remote"));
  await repository.commit({ "svc.yaml": minimalManifest("remote", "2.0.0") }, "v2.0.0");
  const resolver = world.resolver({ sources: [{ name: "main", url: world.path("main") }] });

  for (const spec of ["hello", "main/hello"]) {
    const resolved = await resolver.resolve({ spec }, caller);
    t.like(resolved.origin, { kind: "directory", url: world.path("main", "apps", "hello"), source: "main" });
  }
  for (const spec of ["remote", "remote@2.0.0", "main/remote@v2.0.0", "Remote-App", "remote-app"]) {
    const resolved = await resolver.resolve({ spec }, caller);
    t.like(resolved.origin, { kind: "git", source: "main", tag: "v2.0.0" }, spec);
  }
  const tagged = await t.throwsAsync(resolver.resolve({ spec: "hello@2.0.0" }, caller), {
    instanceOf: SvcError,
  });
  t.regex(tagged.message, /"2\.0\.0": the source "main" has only version 1\.0\.0 of "hello"/);
  for (const spec of ["hello@1.0.0", "hello@v1.0.0"])
    t.is((await resolver.resolve({ spec }, caller)).version, "1.0.0", spec);
  const missing = await t.throwsAsync(resolver.resolve({ spec: "nothing" }, caller), {
    instanceOf: SvcError,
  });
  t.is(missing.code, "not_found");
  t.is(missing.message, 'no package "nothing" in the sources (main)');
  const mistyped = await t.throwsAsync(resolver.resolve({ spec: "helo" }, caller), { instanceOf: SvcError });
  t.is(mistyped.message, 'no package "helo" in the sources (main); the nearest ID is "hello"');
  const unknown = await t.throwsAsync(resolver.resolve({ spec: "other/hello" }, caller), {
    instanceOf: SvcError,
  });
  t.regex(unknown.message, /no source "other" is configured; sources: main/);
});

test("an ID in two sources, and a name of two packages, are ambiguous", async (t) => {
  await using world = await World.create();
  await directorySource(
    world.path("a"),
    `packages:\n  wiki: {directory: x, name: Wiki, summary: First}\n  hello: {directory: y}\n`,
  );
  await directorySource(
    world.path("b"),
    `packages:\n  wiki-js: {directory: x, name: wiki}\n  other: {directory: x, name: Notes}\n  hello: {directory: y}\n`,
  );
  await directorySource(world.path("c"), `packages:\n  third: {directory: x, name: notes}\n`);
  const sources = ["a", "b", "c"].map((name) => ({ name, url: world.path(name) }));
  const resolver = world.resolver({ sources });
  const candidatesOf = async (spec: string): Promise<unknown> => {
    const error = await t.throwsAsync(resolver.resolve({ spec }, caller), { instanceOf: SvcError });
    t.is(error.code, "failed_precondition");
    t.is(error.reason, "ambiguous");
    return (error as SvcError<"ambiguous">).payload?.candidates;
  };
  t.deepEqual(await candidatesOf("hello"), [
    { spec: "a/hello", source: "a", id: "hello", name: "hello", summary: "" },
    { spec: "b/hello", source: "b", id: "hello", name: "hello", summary: "" },
  ]);
  t.like(await candidatesOf("NOTES"), [{ spec: "b/other" }, { spec: "c/third" }]);

  await writePackage(world.path("a", "x"), "wiki", "1");
  const resolved = await resolver.resolve({ spec: "wiki" }, caller);
  t.is(resolved.origin.source, "a", "an ID has precedence over a display name");
});

test("an http source is cached, and its last valid index is used when it is unreachable", async (t) => {
  await using world = await World.create();
  await using server = await GitServer.start(world.path());
  const repository = await TestRepository.create(world.path("remote"));
  await repository.commit({ "svc.yaml": minimalManifest("remote", "1.0.0") }, "v1.0.0");
  let status = 200;
  server.override = (_request, response) => {
    response.writeHead(status).end(`packages: {remote: {repo: "${repository.fileUrl}"}}`);
    return true;
  };
  await directorySource(world.path("dir"), `packages:\n  local: {directory: local}\n`);
  await writePackage(world.path("dir", "local"), "local", "1");
  let nowMs = 1_000_000;
  const warnings: string[] = [];
  const options = {
    sources: [
      { name: "web", url: `${server.url}/index.yaml` },
      { name: "dir", url: world.path("dir") },
    ],
    now: () => nowMs,
    log: { warn: (_details: object, message: string) => warnings.push(message) },
  };
  status = 500;
  const down = world.resolver(options);
  const failure = await t.throwsAsync(down.resolve({ spec: "remote" }, caller), { instanceOf: SvcError });
  t.is(failure.reason, "source_failed");
  t.is(failure.code, "unavailable");
  t.regex(failure.message, /the source "web" failed: .* responded with status 500/);
  t.is((await down.resolve({ spec: "local" }, caller)).origin.source, "dir", "the others are still searched");

  status = 200;
  const resolver = world.resolver(options);
  t.is((await resolver.resolve({ spec: "remote" }, caller)).origin.source, "web");
  const before = server.requests.length;
  await resolver.resolve({ spec: "remote" }, caller);
  t.is(server.requests.length, before, "a fresh index is not requested again");

  status = 503;
  nowMs += 120_000;
  t.is((await resolver.resolve({ spec: "remote" }, caller)).version, "v1.0.0");
  t.is(
    (await world.resolver(options).resolve({ spec: "remote" }, caller)).version,
    "v1.0.0",
    "also after a restart",
  );
  t.true(warnings.length >= 2);
});

test("an https source may not redirect to a server on this host", async (t) => {
  await using world = await World.create();
  await using local = await GitServer.start(world.path());
  local.override = (_request, response) => {
    response.end("packages: {}");
    return true;
  };
  const cert = await writeCertificate(world.path());
  const trusted = getCACertificates("default");
  setDefaultCACertificates([...trusted, cert]);
  t.teardown(() => setDefaultCACertificates(trusted));
  const location = `${local.url}/index.yaml`;
  const key = await readFile(world.path("key.pem"));
  const remote = createServer({ cert, key }, (_request, response) => {
    response.writeHead(302, { location }).end();
  }).listen(0, "127.0.0.1");
  t.teardown(() => remote.close());
  await once(remote, "listening");
  const url = `https://127.0.0.1:${(remote.address() as AddressInfo).port}/index.yaml`;
  await t.throwsAsync(fetchIndex(url, 30_000), { instanceOf: SvcError, message: /does not use https/ });
  t.deepEqual(local.requests, []);
  t.is(await fetchIndex(location, 30_000), "packages: {}");
});

test("an http source may not redirect, and its response has a size limit", async (t) => {
  await using world = await World.create();
  await using server = await GitServer.start(world.path());
  const answers: [string, Record<string, string>, string | Buffer, RegExp][] = [
    ["a redirect to plain http", { location: "http://192.0.2.1/index.yaml" }, "", /does not use https/],
    ["a redirect to a file", { location: "file:///etc/passwd" }, "", /does not use https/],
    ["a loop", { location: "/index.yaml" }, "", /redirects more than 5 times/],
    ["too much", {}, Buffer.alloc(2 ** 21, "#"), /too large \(limit 1048576 bytes\)/],
    ["not YAML", {}, "packages: [", /the source's index\.yaml is not valid/],
    [
      "an escape",
      {},
      "packages: {a: {directory: ../..}}",
      /line 1: packages\.a\.directory: .* is not a relative path/,
    ],
    ["a hidden escape", {}, `packages: {a: {directory: "a\\u2028/../../b"}}`, /is not a relative path/],
    ["a helper program", {}, `packages: {a: {repo: "ext::sh"}}`, /a: the repo names a helper program/],
  ];
  for (const [name, headers, body, message] of answers) {
    server.override = (_request, response) => {
      response.writeHead("location" in headers ? 302 : 200, headers).end(body);
      return true;
    };
    const resolver = world.resolver({ sources: [{ name: "web", url: `${server.url}/index.yaml` }] });
    const error = await t.throwsAsync(
      resolver.resolve({ spec: "a" }, caller),
      { instanceOf: SvcError },
      name,
    );
    t.is(error.reason, "source_failed", name);
    t.regex(error.message, message, name);
  }
});

test("a directory in a git source is a package that tracks its default branch", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "index"));
  await repository.commit(
    {
      "index.yaml": "packages: {hello: {directory: apps/hello}, gone: {directory: apps/gone}}\n",
      "apps/hello/svc.yaml": minimalManifest("hello", "1.0.0"),
      "apps/hello/server.js": "one",
      "apps/hello/LICENSE": "MIT",
    },
    "v1.0.0",
  );
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver({ sources: [{ name: "repo", url: `${server.url}/index/.git` }] });
  const resolved = await resolver.resolve({ spec: "hello" }, caller);
  t.like(resolved.origin, { kind: "git", source: "repo", branch: "main", tag: "", directory: "apps/hello" });
  t.deepEqual(
    resolved.licenses.map(({ name }) => name),
    ["LICENSE"],
  );
  const gone = await t.throwsAsync(resolver.resolve({ spec: "gone" }, caller), { instanceOf: SvcError });
  t.regex(gone.message, /there is no directory "apps\/gone"/);
  const commit = await repository.commit({ "apps/hello/svc.yaml": minimalManifest("hello", "1.1.0") });
  const upgraded = await resolver.resolveUpgrade(installedOf(resolved), "", caller);
  t.is(upgraded.origin.commit, commit);
  t.is(upgraded.manifest.version, "1.1.0");
});

test("a built-in package is upgraded from its current path; a directory's update is found by its version", async (t) => {
  await using world = await World.create();
  const resolverAt = (name: string) =>
    world.resolver({ sources: [{ name: "svc", url: world.path(name), shipped: true }] });
  for (const [name, version] of [
    ["old", "1.9.0"],
    ["new", "1.10.0"],
  ] as const) {
    await directorySource(world.path(name), "packages: {hello: {directory: apps/hello}}\n");
    await writePackage(world.path(name, "apps/hello"), "hello", version);
  }
  const installed = installedOf(await resolverAt("old").resolve({ spec: "hello" }, caller));
  t.is(await resolverAt("old").newerVersion(installed, caller), undefined);
  const resolver = resolverAt("new");
  t.is(await resolver.newerVersion(installed, caller), "1.10.0");
  const upgraded = await resolver.resolveUpgrade(installed, "", caller);
  t.like(upgraded.origin, { kind: "directory", url: world.path("new", "apps/hello"), source: "svc" });
  t.is(upgraded.version, "1.10.0");

  const own = world.path("old", "apps/hello");
  const plain = installedOf(await resolver.resolve({ spec: own }, caller));
  for (const [version, newer] of [
    ["1.10.0", "1.10.0"],
    ["1.8.0", undefined],
    ["next", "next"],
  ] as const) {
    await writePackage(own, "hello", version);
    t.is(await resolver.newerVersion(plain, caller), newer, version);
  }
});

test("an app store that is read only partly says so, also from the cache", async (t) => {
  await using world = await World.create();
  const many = await TestRepository.create(world.path("many"));
  const ids = Array.from({ length: 1_002 }, (_, at) => `app-${String(at).padStart(4, "0")}`);
  const files = ids.map((id) => [`apps/${id}/config.json`, JSON.stringify({ id, name: id })]);
  await many.commit(Object.fromEntries(files) as Record<string, string>);
  const resolver = world.resolver({ sources: [{ name: "many", url: `file://${world.path("many")}` }] });
  for (const asked of ["first", "again"]) {
    const { packages, errors } = await resolver.search([], undefined, caller, {});
    t.is(packages.length, 1_000, asked);
    const error =
      'the source "many" is not read completely: the index lists 1002 apps, but only the first 1000 are listed';
    t.deepEqual(errors, [{ source: "many", error }], asked);
  }
});

test("app stores of CasaOS and Runtipi are sources, without unreadable and hidden apps", async (t) => {
  await using world = await World.create();
  const tipi = (id: string, more: object = {}): string =>
    JSON.stringify({ id, name: "A Wiki", short_desc: "Pages\nfor all", categories: ["books"], ...more });
  const casa = await TestRepository.create(world.path("casa"));
  await casa.commit({
    "Apps/My Notes/docker-compose.yml":
      "services: {a: {image: a}}\nx-casaos: {title: {en_us: Notes}, tagline: {en_us: Writes}, category: Office}\n",
    "Apps/broken/docker-compose.yml": "x-casaos: {title: [\n",
    "Apps/plain/docker-compose.yml": "services: {a: {image: a}}\n",
  });
  const store = await TestRepository.create(world.path("tipi"));
  await store.commit({
    "apps/wiki/config.json": tipi("wiki"),
    "apps/gone/config.json": tipi("gone", { available: false }),
    "apps/broken/config.json": "{",
    "apps/cut/config.json": tipi("cut", { name: `${"x".repeat(255)}\u{1f4d3}`, categories: [] }),
    "apps/two\nlines/config.json": tipi("lines"),
    "apps/large/config.json": tipi("large", { description: "x".repeat(140_000) }),
  });
  const resolver = world.resolver({
    sources: [
      { name: "casa", url: `file://${world.path("casa")}` },
      { name: "tipi", url: `file://${world.path("tipi")}` },
    ],
  });
  const { packages, errors } = await resolver.search([], undefined, caller, {});
  t.deepEqual(errors, []);
  t.deepEqual(
    packages.map(({ id, name, summary, tags, runtime }) => ({ id, name, summary, tags, runtime })),
    [
      { id: "wiki", name: "A Wiki", summary: "Pages", tags: ["books"], runtime: "compose" },
      { id: "my-notes", name: "Notes", summary: "Writes", tags: ["Office"], runtime: "compose" },
      { id: "cut", name: `${"x".repeat(255)}\u{fffd}`, summary: "Pages", tags: [], runtime: "compose" },
    ],
  );
  const error = await t.throwsAsync(resolver.resolve({ spec: "casa/my-notes" }, caller), {
    instanceOf: SvcError,
  });
  t.is(error.reason, "no_manifest");
  t.deepEqual(error.payload, { url: `file://${world.path("casa")}`, directory: "Apps/My Notes" });
});

test("above the limit of files, the newest are retained", async (t) => {
  await using world = await World.create();
  for (const [name, atSecs] of Object.entries({ a: 40, b: 10, c: 30, d: 20 })) {
    const path = join(world.directory, name);
    await writeFile(path, "");
    await utimes(path, atSecs, atSecs);
  }
  await removeOldest(world.directory, 4);
  t.is((await readdir(world.directory)).length, 4);
  await removeOldest(world.directory, 2);
  t.deepEqual((await readdir(world.directory)).toSorted(), ["a", "c"]);
});

const accepted: [request: PackageRequest, spec: PackageSpec][] = [
  [{ spec: "hello" }, { kind: "listed", name: "hello", revision: {} }],
  [{ spec: "Node-RED" }, { kind: "listed", name: "Node-RED", revision: {} }],
  [{ spec: "main/hello" }, { kind: "listed", name: "hello", source: "main", revision: {} }],
  [
    { spec: "hello", source: "main" },
    { kind: "listed", name: "hello", source: "main", revision: {} },
  ],
  [
    { spec: "main/hello", source: "main" },
    { kind: "listed", name: "hello", source: "main", revision: {} },
  ],
  [{ spec: "hello@v1.2.0" }, { kind: "listed", name: "hello", revision: { tag: "v1.2.0" } }],
  [{ spec: "main/hello@1" }, { kind: "listed", name: "hello", source: "main", revision: { tag: "1" } }],
  [
    { spec: "hello", tag: "v1", branch: "" },
    { kind: "listed", name: "hello", revision: { tag: "v1" } },
  ],
  [
    { spec: "hello", branch: "fix/a" },
    { kind: "listed", name: "hello", revision: { branch: "fix/a" } },
  ],
  [
    { spec: "https://Git.Example/a/b.git", tag: "v1" },
    {
      kind: "git",
      gitUrl: { transport: "https", url: "https://git.example/a/b.git" },
      revision: { tag: "v1" },
    },
  ],
  [
    { spec: "ssh://git@host:2222/a/b" },
    { kind: "git", gitUrl: { transport: "ssh", url: "ssh://git@host:2222/a/b" }, revision: {} },
  ],
  [
    { spec: "git@host.example:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "git@host.example:a/b.git" }, revision: {} },
  ],
  [
    { spec: "http://127.0.0.1:3000/a.git" },
    { kind: "git", gitUrl: { transport: "http", url: "http://127.0.0.1:3000/a.git" }, revision: {} },
  ],
  [
    { spec: "https://[::1]/a.git" },
    { kind: "git", gitUrl: { transport: "https", url: "https://[::1]/a.git" }, revision: {} },
  ],
  [
    { spec: "file:///srv/my%20repo.git" },
    {
      kind: "git",
      gitUrl: { transport: "file", url: "file:///srv/my%20repo.git", path: "/srv/my repo.git" },
      revision: {},
    },
  ],
  [
    { spec: "[git@host.example:2222]:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "[git@host.example:2222]:a/b.git" }, revision: {} },
  ],
  [
    { spec: "git@[::1]:a/b.git" },
    { kind: "git", gitUrl: { transport: "ssh", url: "git@[::1]:a/b.git" }, revision: {} },
  ],
  [
    { spec: "https://host/a.git#v1.0:docker/web/" },
    {
      kind: "git",
      gitUrl: { transport: "https", url: "https://host/a.git" },
      revision: { ref: "v1.0" },
      directory: "docker/web",
    },
  ],
  [
    { spec: "git@host:a/b.git#:web", tag: "web-v1.0" },
    {
      kind: "git",
      gitUrl: { transport: "ssh", url: "git@host:a/b.git" },
      revision: { tag: "web-v1.0" },
      directory: "web",
    },
  ],
  [
    { spec: "file:///srv/a%23b##12-fix" },
    {
      kind: "git",
      gitUrl: { transport: "file", url: "file:///srv/a%23b", path: "/srv/a#b" },
      revision: { ref: "#12-fix" },
    },
  ],
  [
    { spec: "hello", tag: "@acme/web@1.4.0" },
    { kind: "listed", name: "hello", revision: { tag: "@acme/web@1.4.0" } },
  ],
  [{ spec: "/srv/packages/hello/" }, { kind: "directory", path: "/srv/packages/hello" }],
  [{ spec: "//" }, { kind: "directory", path: "/" }],
  [{ spec: "/srv/my packages/hello" }, { kind: "directory", path: "/srv/my packages/hello" }],
];

for (const [request, spec] of accepted) {
  test(`accepted: ${JSON.stringify(request)}`, (t) => {
    t.deepEqual(parseSpec(request), spec);
  });
}

const refused: [request: PackageRequest, field: string, message: RegExp][] = [
  [{ spec: "" }, "spec", /is empty/],
  [{ spec: "-hello" }, "spec", /looks like an option/],
  [{ spec: "--upload-pack=touch /tmp/x" }, "spec", /looks like an option/],
  [{ spec: "ext::sh -c whoami" }, "spec", /white space/],
  [{ spec: "ext::sh" }, "spec", /helper program/],
  [{ spec: "fd::7" }, "spec", /helper program/],
  [{ spec: "git://host/a" }, "spec", /scheme "git"/],
  [{ spec: "git@host:2222:a/b" }, "spec", /for the port 2222 write ssh:\/\/git@host:2222\/a\/b/],
  [{ spec: "[git@host]:2222:a/b" }, "spec", /for the port 2222 write ssh:\/\/git@host:2222\/a\/b/],
  [{ spec: "ssh://-oProxyCommand=x/a" }, "spec", /no valid host/],
  [{ spec: "ssh://-oProxyCommand=x@host/a" }, "spec", /username/],
  [{ spec: "-oProxyCommand=x:a" }, "spec", /option/],
  [{ spec: "git@-oProxyCommand:a" }, "spec", /no valid host/],
  [{ spec: "git@host:2222/a/b" }, "spec", /for the port 2222 write ssh:\/\/git@host:2222\/a\/b;/],
  [{ spec: "[git@host:99999]:a/b" }, "spec", /the port 99999/],
  [{ spec: "[-oProxyCommand=x:22]:a/b" }, "spec", /no valid host/],
  [{ spec: "[git@host:22]:-a" }, "spec", /looks like an option/],
  [{ spec: "https://host/a#v1", branch: "main" }, "branch", /already names "#v1"/],
  [{ spec: "https://host/a#--output=x" }, "spec", /is not a valid branch or tag name/],
  [{ spec: "https://host/a#main:../b" }, "spec", /contains "\." or "\.\."/],
  [{ spec: "git@host:-a" }, "spec", /looks like an option/],
  [{ spec: "git@host:a;b" }, "spec", /characters/],
  [{ spec: "https://host/$(id)" }, "spec", /characters/],
  [{ spec: "https://host/a/../b" }, "spec", /"\.\."/],
  [{ spec: "https://host" }, "spec", /scheme:\/\/host\/path/],
  [{ spec: "https://host/a?token=x" }, "spec", /characters/],
  [{ spec: "https://me:hunter2@host/a" }, "spec", /credentials/],
  [{ spec: "ssh://me:hunter2@host/a" }, "spec", /password/],
  [{ spec: "file://host/a" }, "spec", /absolute path/],
  [{ spec: "file:///a/../../etc" }, "spec", /"\.\."/],
  [{ spec: "file:///a%00b" }, "spec", /control/],
  [{ spec: "/a/../b" }, "spec", /"\.\."/],
  [{ spec: "/a\nb" }, "spec", /control/],
  [{ spec: "hello\0" }, "spec", /control/],
  [{ spec: "hello world" }, "spec", /is not a package ID/],
  [{ spec: "a/b/c" }, "spec", /is not a package ID, git URL or absolute path$/],
  [{ spec: "github.com/me/app" }, "spec", /; for a git repository: https:\/\/github\.com\/me\/app$/],
  [{ spec: "hello@" }, "spec", /is not a valid tag name/],
  [{ spec: "hello@-x" }, "spec", /is not a valid tag name/],
  [{ spec: "hello", branch: "a", tag: "b" }, "branch", /not both/],
  [{ spec: "hello@v1", tag: "v1" }, "tag", /already has a tag/],
  [{ spec: "hello@v1", branch: "main" }, "branch", /already has a tag/],
  [{ spec: "hello", branch: "--output=x" }, "branch", /is not a valid branch name/],
  [{ spec: "hello", tag: "a..b" }, "tag", /is not a valid tag name/],
  [{ spec: "main/hello", source: "other" }, "source", /differs/],
  [{ spec: "/srv/a", source: "main" }, "source", /does not belong to a source/],
  [{ spec: "/srv/a", tag: "v1" }, "tag", /for a version of its git repository, install file:\/\/\/srv\/a$/],
  [{ spec: "https://host/a", source: "main" }, "source", /does not belong to a source/],
];

for (const [request, field, message] of refused) {
  test(`rejected: ${JSON.stringify(request)}`, (t) => {
    const error = t.throws(() => parseSpec(request), {
      instanceOf: SvcError,
      message,
    }) as SvcError<"invalid_request">;
    t.is(error.code, "invalid_argument");
    t.is(error.payload?.violations?.[0]?.field, field);
    t.notRegex(error.message, /hunter2/, "credentials are redacted");
  });
}

test("an accepted spec is safe as an argument of git and of ssh", (t) => {
  const nasty = fc.constantFrom(
    ...Array.from("$`;|&<>(){}'\"\\ \t\n\0-=@:/.%#?*!~^[]"),
    "ext::",
    "--upload-pack=",
    "-o",
    "..",
  );
  const word = fc
    .array(fc.oneof(nasty, fc.constantFrom("a", "b1", "host")), { maxLength: 8 })
    .map((s) => s.join(""));
  const spec = fc.oneof(
    word,
    fc
      .tuple(fc.constantFrom("https://", "ssh://", "file:///", "git@", "ext::", "http://"), word, word)
      .map((p) => p.join("")),
    fc
      .tuple(fc.constantFrom("https://host/", "ssh://git@host/", "git@host:", "a@", "main/"), word)
      .map((p) => p.join("")),
    fc.string(),
  );
  fc.assert(
    fc.property(spec, fc.option(word, { nil: undefined }), (text, tag) => {
      let parsed: PackageSpec;
      try {
        parsed = parseSpec({ spec: text, ...(tag !== undefined && { tag }) });
      } catch (error) {
        return error instanceof SvcError && error.code === "invalid_argument";
      }
      if (parsed.kind === "directory") return parsed.path.startsWith("/") && !parsed.path.includes("\0");
      const { branch, tag: parsedTag } = parsed.revision;
      if (![branch, parsedTag].every((name) => name === undefined || isRefName(name))) return false;
      if (parsed.kind === "listed") return /^[A-Za-z0-9][A-Za-z0-9._+-]*$/.test(parsed.name);
      const { transport, url } = parsed.gitUrl;
      if (transport === "file") return parsed.gitUrl.path?.startsWith("/") === true;
      // The host that ssh gets, and the path that the remote side gets.
      const [, host = "-", path = "-"] =
        /^(?:[a-z]+:\/\/)?(?:[^@/:]*@)?(\[[^\]]*\]|[^:/]*)(?::\d+)?[:/](.*)$/.exec(url) ?? [];
      if ([url, host, path].some((part) => part.startsWith("-"))) return false;
      return !/[\s$`;|&<>(){}'"\\*?#!^]|::/.test(path);
    }),
    { numRuns: 20_000 },
  );
  t.pass();
});

test("urls in messages lose their credentials", (t) => {
  t.is(redactUrls("fatal: https://me:pw@host/a?token=x failed"), "fatal: https://***@host/a?*** failed");
  t.is(
    redactUrls("https://u:p@ss@host/x and https://u:p?a@b@c@host"),
    "https://***@host/x and https://***@host",
  );
  t.is(redactUrls("https://host/a@b"), "https://host/a@b");
});
