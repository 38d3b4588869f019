/** Git hosts on a local network, with plain http or self-signed certificates, and repositories of unusual shape. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../src/errors.ts";
import { parseGitUrl } from "../../src/packages/git/git-url.ts";
import { isInsecure } from "../../src/packages/git/insecure-hosts.ts";
import { installedOf, World } from "../packages/support/world.ts";
import { minimalManifest, TestRepository } from "../packages/support/repository.ts";
import { GitServer, redirectingTo } from "../support/git-server.ts";
import { keepInMemory } from "../support/in-memory.ts";

keepInMemory();

const run = promisify(execFile);
const selfUid = process.getuid?.() ?? 0;
/** A name of this host that svc treats as another host. */
const lanHost = "git.localhost";

async function withRepository(): Promise<{ world: World; root: string }> {
  const world = await World.create();
  const repository = await TestRepository.create(world.path("git", "app"));
  await repository.commit({ "svc.yaml": minimalManifest("app", "1.0.0") }, "v1.0.0");
  return { world, root: world.path("git") };
}

async function certificate(dir: string): Promise<{ key: string; cert: string }> {
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  await run("openssl", [
    ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"],
    ...["-subj", `/CN=${lanHost}`, "-keyout", key, "-out", cert],
  ]);
  return { key: await readFile(key, "utf8"), cert: await readFile(cert, "utf8") };
}

const portOf = (server: GitServer): string => server.host.split(":")[1] ?? "";

async function failureOf(t: ExecutionContext, work: Promise<unknown>): Promise<string> {
  const error = await t.throwsAsync(work, { instanceOf: SvcError });
  return error.message;
}

test("a repository of another host over http is installed, and its upgrades are found, if root allows its host", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  await using server = await GitServer.start(root);
  const spec = `http://${lanHost}:${portOf(server)}/app`;
  t.is(
    await failureOf(t, world.resolver().resolve({ spec }, selfUid)),
    `${spec} uses http, which is not protected against changes; use https, or set insecure_hosts = ` +
      `["${lanHost}:${portOf(server)}"] under [git] in svc.toml, and restart svc`,
  );
  t.deepEqual(server.requests, []);
  const resolver = world.resolver({ git: { insecureHosts: [lanHost] } });
  const resolved = await resolver.resolve({ spec }, selfUid);
  t.is(resolved.version, "v1.0.0");
  const repository = TestRepository.at(join(root, "app"));
  await repository.commit({ "svc.yaml": minimalManifest("app", "1.1.0") }, "v1.1.0");
  t.is(await resolver.newerVersion(installedOf(resolved), selfUid), "v1.1.0");
});

test("a self-signed certificate is rejected with the setting that allows its host, and accepted once root allows it", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  await using server = await GitServer.start(root, undefined, await certificate(world.directory));
  const spec = `https://${lanHost}:${portOf(server)}/app`;
  t.is(
    await failureOf(t, world.resolver().resolve({ spec }, selfUid)),
    `the certificate of ${spec} is not trusted; add its CA to the host's certificates, or set insecure_hosts = ` +
      `["${lanHost}:${portOf(server)}"] under [git] in svc.toml, and restart svc`,
  );
  const resolver = world.resolver({ git: { insecureHosts: [`${lanHost}:${portOf(server)}`] } });
  t.is((await resolver.resolve({ spec }, selfUid)).version, "v1.0.0");
});

test("redirects of an insecure host are not followed", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  await using target = await GitServer.start(root);
  const tls = await certificate(world.directory);
  await using server = await GitServer.start(root, redirectingTo(target.url), tls);
  const resolver = world.resolver({ git: { insecureHosts: [lanHost] } });
  await failureOf(t, resolver.resolve({ spec: `https://${lanHost}:${portOf(server)}/app` }, selfUid));
  t.deepEqual(target.requests, []);
});

for (const [url, hosts, expected] of [
  ["http://git.lan/a", ["git.lan"], true],
  ["http://git.lan:3000/a", ["git.lan"], true],
  ["http://git.lan:3000/a", ["GIT.lan:3000"], true],
  ["http://git.lan/a", ["git.lan:80"], true],
  ["https://git.lan/a", ["git.lan:443"], true],
  ["https://git.lan/a", ["git.lan:80"], false],
  ["http://git.lan:3000/a", ["git.lan:3001"], false],
  ["http://git.lan.evil.example/a", ["git.lan"], false],
  ["http://[fd00::7]:3000/a", ["[fd00::7]"], true],
  ["http://[fd00::7]:3000/a", ["FD00:0::7"], true],
  ["http://[fd00::7]:3000/a", ["[fd00:0::7]:3000"], true],
  ["http://git.lan/a", ["git.lan."], true],
  ["https://git.lan/a", ["git.lan.:443"], true],
  ["ssh://git.lan/a", ["git.lan"], false],
] as const) {
  test(`${url} is ${expected ? "" : "not "}at an insecure host of ${hosts.join(", ")}`, (t) => {
    const result = parseGitUrl(url);
    t.is("gitUrl" in result && isInsecure(result.gitUrl, hosts), expected);
  });
}

test("the error for an empty repository says that it is empty", async (t) => {
  await using world = await World.create();
  await run("git", ["init", "-q", "--bare", world.path("empty.git")]);
  const spec = `file://${world.path("empty.git")}`;
  t.is(
    await failureOf(t, world.resolver().resolve({ spec }, selfUid)),
    `${spec} is empty: it has no branches and no tags`,
  );
});

test("the error for a missing default branch lists the branches", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  const dir = join(root, "app");
  await run("git", ["-C", dir, "tag", "-d", "v1.0.0"]);
  await run("git", ["-C", dir, "branch", "-m", "dev"]);
  await run("git", ["-C", dir, "branch", "next"]);
  await run("git", ["-C", dir, "symbolic-ref", "HEAD", "refs/heads/gone"]);
  const spec = `file://${dir}`;
  t.is(
    await failureOf(t, world.resolver().resolve({ spec }, selfUid)),
    `${spec} has neither a version tag nor a default branch; specify a branch; its branches: dev, next`,
  );
  t.is((await world.resolver().resolve({ spec, branch: "dev" }, selfUid)).origin.branch, "dev");
});

test("a repository with tags and without branches is installed from its newest version", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  const dir = join(root, "app");
  await run("git", ["-C", dir, "checkout", "-q", "--detach"]);
  await run("git", ["-C", dir, "branch", "-D", "main"]);
  t.is((await world.resolver().resolve({ spec: `file://${dir}` }, selfUid)).version, "v1.0.0");
});

test("the error for a missing directory names it", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  const spec = `file://${join(root, "app")}#v1.0.0:no/such`;
  t.regex(await failureOf(t, world.resolver().resolve({ spec }, selfUid)), /no\/such/);
});

test("a commit is installed by its full hash, over http too, and upgrades keep it", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  await using server = await GitServer.start(root);
  const repository = TestRepository.at(join(root, "app"));
  const { stdout } = await run("git", ["-C", join(root, "app"), "rev-parse", "HEAD"]);
  const commit = stdout.trim();
  // As a tag, it would select another commit.
  await repository.commit({ "svc.yaml": minimalManifest("app", "1.1.0") }, commit);
  for (const spec of [`file://${join(root, "app")}`, `http://${lanHost}:${portOf(server)}/app`]) {
    const resolver = world.resolver({ git: { insecureHosts: [lanHost] } });
    const resolved = await resolver.resolve({ spec: `${spec}#${commit}` }, selfUid);
    t.like(resolved, { manifest: { version: "1.0.0" }, version: commit.slice(0, 12) });
    t.like(resolved.origin, { branch: "", tag: "", commit });
    t.is(await resolver.newerVersion(installedOf(resolved), selfUid), undefined);
    const kept = await resolver.resolveUpgrade(installedOf(resolved), "", selfUid);
    t.is(kept.origin.commit, commit);
    t.is((await resolver.resolve({ spec, tag: commit }, selfUid)).origin.commit, commit);
  }
});

test("the error for a part of a hash asks for the full hash, and a missing commit is named as such", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  await using server = await GitServer.start(root);
  const missing = "0123456789abcdef0123456789abcdef01234567";
  for (const spec of [`file://${join(root, "app")}`, `http://${lanHost}:${portOf(server)}/app`]) {
    const resolver = world.resolver({ git: { insecureHosts: [lanHost] } });
    t.is(
      await failureOf(t, resolver.resolve({ spec: `${spec}#0123abc` }, selfUid)),
      `no tag "0123abc" in ${spec}; for a commit, specify its full hash`,
    );
    t.is(
      await failureOf(t, resolver.resolve({ spec: `${spec}#${missing}` }, selfUid)),
      `${spec} does not have the commit, or its server only sends branches and tags`,
    );
  }
});

test("a tag can look like a hash, and a branch cannot look like an option", async (t) => {
  const { world, root } = await withRepository();
  await using _world = world;
  const dir = join(root, "app");
  await run("git", ["-C", dir, "tag", "deadbeef"]);
  await run("git", ["-C", dir, "branch", "feature/x#1"]);
  await run("git", ["-C", dir, "update-ref", "refs/heads/--upload-pack=touch", "HEAD"]);
  const spec = `file://${dir}`;
  const resolver = world.resolver();
  t.is((await resolver.resolve({ spec: `${spec}#deadbeef` }, selfUid)).version, "deadbeef");
  t.is((await resolver.resolve({ spec, branch: "feature/x#1" }, selfUid)).origin.branch, "feature/x#1");
  t.regex(
    await failureOf(t, resolver.resolve({ spec, branch: "--upload-pack=touch" }, selfUid)),
    /is not a valid branch name/,
  );
});
