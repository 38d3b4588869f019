/** Page sessions on a real daemon: how they are opened, their identity, and how they end. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import {
  isRoot,
  needsRoot,
  protocols,
  startDaemon,
  type Protocol,
  type TestDaemon,
  type UserConnection,
} from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

const rootTest = isRoot ? test : test.skip;
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
  const daemon = await emptyDaemon();
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
  const daemon = await emptyDaemon();
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
    const daemon = await emptyDaemon();
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
