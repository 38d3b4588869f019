/** Sessions of the page, and credentials of private git hosts. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import { hasScript, needsScript, onTerminal } from "../../cli/support/on-terminal.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  type Protocol,
  type TestDaemon,
  type UserConnection,
  isRoot,
  needsRoot,
  protocolOf,
  protocols,
  startDaemon,
} from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { GitServer, askingFor, redirectingTo } from "../../support/git-server.ts";
import { freePort, writePackage, writeRepository } from "../../support/packages.ts";

// Private git hosts: which credentials each user may use, and which values are never returned.

const rootTest = isRoot ? test : test.skip;
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

// Page sessions on a real daemon: how they are opened, their identity, and how they end.

const sessionDaemon = sharedDaemon();

const annUid = 65534;
const benUid = 1;

async function openSession(
  daemon: TestDaemon,
  of: Pick<UserConnection, "client">,
  protocol?: Protocol,
): Promise<string> {
  const { code } = await of.client(SessionService, protocol).issueSessionCode({});
  return (await daemon.tokenClient(SessionService, protocol, code).openSession({})).token;
}

rootTest(`a session sees and does what its user may, over every protocol${needsRoot}`, async (t) => {
  const daemon = await sessionDaemon();
  await using ann = await daemon.as(annUid);
  await using ben = await daemon.as(benUid);
  const [ofAnn, ofRoot] = [join(daemon.dir, "ann"), join(daemon.dir, "root")];
  await writePackage(ofAnn, await freePort());
  await writePackage(ofRoot, await freePort());
  const { id } = await ann.client(AppService).installApp({ spec: ofAnn });
  await daemon.client(AppService).installApp({ spec: ofRoot });
  for (const protocol of protocols) {
    const token = await openSession(daemon, ann, protocol);
    const status = await daemon.tokenClient(DaemonService, protocol, token).getStatus({});
    t.like(status, { caller: { uid: annUid, root: false }, apps: { total: 1 } });
    const apps = daemon.tokenClient(AppService, protocol, token);
    t.deepEqual(
      (await apps.listApps({})).apps.map((app) => [app.id, app.owner]),
      [[id, annUid]],
    );
    const others = daemon.tokenClient(AppService, protocol, await openSession(daemon, ben, protocol));
    t.deepEqual((await others.listApps({})).apps, []);
    t.like(await errorOf(others.getApp({ id })), { reason: "not_found" });
    t.like(await errorOf(daemon.tokenClient(TokenService, protocol, token).getTokenStatus({})), {
      reason: "token_denied",
    });
    const own = await openSession(daemon, daemon, protocol);
    t.is((await daemon.tokenClient(AppService, protocol, own).listApps({})).apps.length, 2);
    t.like(await errorOf(daemon.tokenClient(TokenService, protocol, own).rotatePrimaryToken({})), {
      reason: "token_denied",
    });
    t.like(
      await errorOf(
        daemon.tokenClient(FileService, protocol, own).statPath({ path: join(daemon.dir, "api.token") }),
      ),
      { code: "PermissionDenied" },
      "only root's peers may read the token's own file",
    );
  }
  t.is((await daemon.client(TokenService).getTokenStatus({})).sessions, 3 * protocols.length);
});

test("of fifty concurrent exchanges of a code one gets a session, and none later", async (t) => {
  // All of loopback is one address.
  await using daemon = await startDaemon({ config: "[api.limits]\ntoken_failure_budget = 1000\n" });
  const { code, page } = await daemon.client(SessionService).issueSessionCode({});
  t.regex(page, new RegExp(`^http://[0-9a-f]{32}\\.localhost:${daemon.port}/$`));
  const trade = () => daemon.tokenClient(SessionService, "connect", code).openSession({});
  const outcomes = await Promise.allSettled(Array.from({ length: 50 }, trade));
  t.is(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
  t.like(await errorOf(trade()), { code: "Unauthenticated" });
});

test("only socket peers get codes, which open only a session", async (t) => {
  const daemon = await sessionDaemon();
  const { token: access } = await daemon.client(TokenService).issueAccessToken({});
  const session = await openSession(daemon, daemon);
  for (const token of [daemon.token, access, session]) {
    const as = daemon.tokenClient(SessionService, "connect", token);
    t.like(await errorOf(as.issueSessionCode({})), { reason: "token_denied" });
    t.like(await errorOf(as.openSession({})), { reason: "token_denied" });
  }
  t.like(await errorOf(daemon.client(SessionService).openSession({})), { reason: "token_denied" });
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  t.like(await errorOf(daemon.tokenClient(AppService, "connect", code).listApps({})), {
    reason: "token_denied",
  });
  for (const ttlSecs of [0, 43_201])
    t.like(await errorOf(daemon.client(SessionService).issueSessionCode({ ttlSecs })), {
      reason: "invalid_request",
    });
});

const ends: Readonly<Record<string, (daemon: TestDaemon, token: string) => Promise<unknown>>> = {
  "by a rotation": (daemon) => daemon.client(TokenService).rotatePrimaryToken({}),
  "by its page": (daemon, token) => daemon.tokenClient(SessionService, "connect", token).endSessions({}),
  "by its user": (daemon) => daemon.client(SessionService).endSessions({}),
};
for (const [how, end] of Object.entries(ends)) {
  test(`a session that is ended ${how} ends its streams, too`, async (t) => {
    t.timeout(60_000);
    const daemon = await sessionDaemon();
    const token = await openSession(daemon, daemon);
    const events = daemon.tokenClient(EventService, "connect", token).streamEvents({ past: true });
    const ended = errorOf(
      (async () => {
        for await (const _event of events);
      })(),
    );
    await eventually(async () => {
      await daemon.tokenClient(DaemonService, "connect", token).getStatus({});
    });
    await end(daemon, token);
    t.like(await ended, { code: "Unauthenticated" });
    t.like(await errorOf(daemon.tokenClient(DaemonService, "connect", token).getStatus({})), {
      code: "Unauthenticated",
    });
  });
}

test("svc web prints an address that signs in once; neither code nor token appears anywhere else", async (t) => {
  await using daemon = await startDaemon();
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  const { stdout } = await svc("web");
  const [, page, code = ""] =
    /^(http:\/\/[0-9a-f]{32}\.localhost:\d+\/)#code=(svco_[\w-]{43})\n$/.exec(stdout) ?? [];
  t.is(new URL(page ?? "").port, String(daemon.port));
  const { token } = await daemon.tokenClient(SessionService, "connect", code).openSession({});
  await daemon.tokenClient(AppService, "connect", token).listApps({});
  t.regex((await svc("token", "status")).stdout, /Sessions: +1 open/);
  t.is((await svc("web", "--end")).stdout, "Ended 1 session\n");
  await eventually(() => assert.match(daemon.log(), /a session of the page was opened/));
  await daemon.stop();
  const database = await readFile(join(daemon.storeDir, "svc.db"), "latin1");
  for (const secret of [code, token]) {
    t.false(daemon.log().includes(secret.slice(5)));
    t.false(database.includes(secret.slice(5)));
  }
});
