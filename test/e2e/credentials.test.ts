/** Private git hosts: which credentials each user may use, and which values are never returned. */
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { hasScript, needsScript, onTerminal } from "../cli/support/on-terminal.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { protocolOf, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { askingFor, GitServer, redirectingTo } from "../support/git-server.ts";
import { freePort, writeRepository } from "../support/packages.ts";

const rootTest = process.getuid?.() === 0 ? test : test.skip;
const password = "a-password-that-nobody-else-knows";
const login = { username: "me", password };
const nobody = 65_534;
const emptyDaemon = sharedDaemon({ config: '[[sources]]\nname = "main"\nurl = "./main"\n' });

/** The daemon, without the credentials of the previous test. */
async function withoutCredentials(): Promise<TestDaemon> {
  const daemon = await emptyDaemon();
  const credentials = daemon.client(CredentialService);
  for (const { name, owner } of (await credentials.listCredentials({})).credentials)
    await credentials.removeCredential({ name, owner });
  return daemon;
}

test("a secret is never returned", async (t) => {
  const daemon = await withoutCredentials();
  const credentials = daemon.client(CredentialService, protocolOf(import.meta.url));
  const spec = { name: "forge", kind: "git", host: "Git.Example.org:8443", username: "me" };

  const made = await credentials.upsertCredential({ ...spec, secret: password });

  t.like(made, { name: "forge", host: "git.example.org:8443", username: "me", secret: "***" });
  const { credentials: listed } = await credentials.listCredentials({});
  t.deepEqual(
    listed.map(({ name, secret }) => [name, secret]),
    [["forge", "***"]],
  );
  const moved = { ...spec, host: "elsewhere.example.org", secret: "***" };
  t.like(await errorOf(credentials.upsertCredential(moved)), {
    code: "InvalidArgument",
    reason: "invalid_request",
  });
  const renamed = { ...spec, username: "you", secret: "***" };
  t.is((await credentials.upsertCredential(renamed)).username, "you");
  t.like(await errorOf(credentials.upsertCredential({ ...spec, name: "new", secret: "***" })), {
    code: "InvalidArgument",
    reason: "invalid_request",
  });
  await credentials.removeCredential({ name: "forge" });
  t.like(await errorOf(credentials.removeCredential({ name: "forge" })), { code: "NotFound" });
  t.false(daemon.log().includes(password));
});

test("an app is installed and upgraded from a host that requires a password", async (t) => {
  const daemon = await withoutCredentials();
  await writeRepository(join(daemon.dir, "private", "web"), await freePort(), [{ version: "1.0.0" }]);
  await using forge = await GitServer.start(join(daemon.dir, "private"), askingFor(login));
  const apps = daemon.client(AppService);
  const spec = `${forge.url}/web/.git`;
  const refused = await errorOf(apps.installApp({ spec }));
  t.like(refused, { code: "FailedPrecondition", reason: "git_failed" });
  t.regex(refused.message, /credential/);

  const given = { name: "forge", kind: "git", host: forge.host, username: "me", secret: password };
  await daemon.client(CredentialService).upsertCredential(given);

  const app = await apps.installApp({ spec });
  t.is(app.version, "v1.0.0");
  t.false(JSON.stringify(app.origin).includes(password));
  t.true((await apps.upgradeApp({ id: app.id })).upToDate);
});

rootTest("a credential can be used only by its owner (as root: two users are needed)", async (t) => {
  const daemon = await withoutCredentials();
  await writeRepository(join(daemon.dir, "private", "web"), await freePort(), [{ version: "1.0.0" }]);
  await using forge = await GitServer.start(join(daemon.dir, "private"), askingFor(login));
  const given = { name: "forge", kind: "git", host: forge.host, username: "me", secret: password };
  await daemon.client(CredentialService).upsertCredential(given);
  const spec = `${forge.url}/web/.git`;
  t.is((await daemon.client(AppService).installApp({ spec })).id, "web");
  await using other = await daemon.as(nobody);

  t.like(await errorOf(other.client(AppService).installApp({ spec })), {
    code: "FailedPrecondition",
    reason: "git_failed",
  });
  t.deepEqual((await other.client(CredentialService).listCredentials({})).credentials, []);
  const stolen = other.client(CredentialService).removeCredential({ name: "forge", owner: 0 });
  t.like(await errorOf(stolen), { code: "NotFound" });
  t.is((await daemon.client(CredentialService).listCredentials({})).credentials.length, 1);
});

rootTest(
  "packages behind a credential are invisible to other users, cached or not (as root: two users)",
  async (t) => {
    const daemon = await withoutCredentials();
    const index = 'packages:\n  secret-project: { repo: "https://example.org/secret.git" }\n';
    await writeRepository(join(daemon.dir, "private", "index"), await freePort(), [
      { files: { "index.yaml": index } },
    ]);
    await using forge = await GitServer.start(join(daemon.dir, "private"), askingFor(login));
    const given = { name: "forge", kind: "git", host: forge.host, username: "me", secret: password };
    await daemon.client(CredentialService).upsertCredential(given);
    await daemon.client(SourceService).upsertSource({ name: "private", url: `${forge.url}/index/.git` });
    const unknown = { spec: "private/no-such-project" };
    t.like(await errorOf(daemon.client(AppService).installApp(unknown)), { code: "NotFound" });
    await using other = await daemon.as(nobody);

    t.like(await errorOf(other.client(AppService).installApp(unknown)), { reason: "source_failed" });
    await daemon.client(SourceService).removeSource({ name: "private" });
  },
);

test("a redirecting host does not receive a password at its target", async (t) => {
  const daemon = await withoutCredentials();
  await writeRepository(join(daemon.dir, "lure", "web"), await freePort(), [{ version: "1.0.0" }]);
  await using thief = await GitServer.start(join(daemon.dir, "lure"));
  await using forge = await GitServer.start(daemon.dir, redirectingTo(thief.url));
  const given = { name: "forge", kind: "git", host: forge.host, username: "me", secret: password };
  await daemon.client(CredentialService).upsertCredential(given);

  t.like(await errorOf(daemon.client(AppService).installApp({ spec: `${forge.url}/web/.git` })), {
    reason: "git_failed",
  });

  t.true(forge.shown.some((header) => header.startsWith("Basic ")));
  t.deepEqual(
    thief.shown.filter((header) => header !== ""),
    [],
  );
});

(hasScript ? test : test.skip)(`a password is typed unseen, on no command line${needsScript}`, async (t) => {
  const daemon = await withoutCredentials();
  const socket = ["--socket", daemon.socketPath];
  const { exitCode, screen } = await onTerminal(
    ["credential", "add", "forge", "git.example.org", "-u", "me", ...socket],
    [["Password or token:", password]],
  );
  t.is(exitCode, 0, screen);
  t.regex(screen, /Added forge for git\.example\.org/);
  t.false(screen.includes(password));
  const list = await onTerminal(["credential", ...socket]);
  t.regex(list.screen, /forge +git +git\.example\.org +me/);
  t.is((await onTerminal(["credential", "remove", "forge", ...socket])).exitCode, 0);
});

test("sources are added and removed; those of the configuration file stay", async (t) => {
  const daemon = await withoutCredentials();
  const sources = daemon.client(SourceService, protocolOf(import.meta.url));
  const repository = join(daemon.dir, "index");
  await writeRepository(join(daemon.dir, "web"), await freePort(), [{ version: "1.0.0" }]);
  const index = `packages:\n  web: { repo: "file://${join(daemon.dir, "web")}" }\n`;
  await writeRepository(repository, await freePort(), [{ files: { "index.yaml": index } }]);

  t.like(await sources.upsertSource({ name: "mine", url: `file://${repository}` }), { configured: false });
  t.deepEqual(
    (await sources.listSources({})).sources.map(({ name, configured }) => [name, configured]),
    [
      ["examples", true],
      ["main", true],
      ["mine", false],
      ["svc", false],
    ],
  );
  const found = await sources.searchPackages({ query: " WEB  web", source: "mine" });
  t.like(found, { packages: [{ spec: "mine/web", source: "mine", id: "web", name: "web" }], total: 1 });
  const { packages, errors } = await sources.searchPackages({ query: "web" });
  t.true(packages.some(({ spec }) => spec === "mine/web"));
  t.true(
    errors.some(({ source, error }) => source === "main" && error !== ""),
    "a missing source",
  );
  t.like(await sources.searchPackages({ query: "web nothing", source: "mine" }), {
    packages: [],
    total: 0,
  });
  t.like(await errorOf(sources.searchPackages({ source: "nowhere" })), { reason: "invalid_request" });
  t.is((await daemon.client(AppService).installApp({ spec: "mine/web" })).origin?.source, "mine");
  t.like(await errorOf(sources.upsertSource({ name: "main", url: "/elsewhere" })), {
    code: "FailedPrecondition",
    reason: "not_possible",
  });
  t.like(await errorOf(sources.removeSource({ name: "main" })), { reason: "not_possible" });
  t.like(await errorOf(sources.upsertSource({ name: "bad", url: "ext::sh -c id" })), {
    code: "InvalidArgument",
    reason: "invalid_request",
  });
  await sources.removeSource({ name: "mine" });
  t.like(await errorOf(sources.removeSource({ name: "mine" })), { code: "NotFound" });
});
