/** Tokens on a real daemon: every call, streams that end with their token, kills, and no trace of a token. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { timestampMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import { openInProcess } from "../../../src/cli/client/in-process.ts";
import { mintToken, shortDigest, tokenDigest } from "../../../src/access/tokens/token-digest.ts";
import { runSvc, type SvcRun } from "../../cli/support/run-svc.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  isRoot,
  needsRoot,
  protocolOf,
  startDaemon,
  type Protocol,
  type TestDaemon,
} from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { sendRest } from "../../support/rest-transport.ts";
import { programs } from "../../support/programs.ts";

const rootTest = isRoot ? test : test.skip;
/** Each test ends without a pending rotation: the primary token is the one in the file. */
const emptyDaemon = sharedDaemon();
const unknown = { code: "Unauthenticated", reason: "unauthenticated" };
const denied = { code: "PermissionDenied", reason: "token_denied", payload: { case: "tokenDenied" } };

/** The kind that the daemon assigns to a token, or `undefined` if it is unknown. */
async function kindOf(daemon: TestDaemon, token: string): Promise<string | undefined> {
  const { status, text } = await sendRest(
    { port: daemon.port, headers: { authorization: `Bearer ${token}` } },
    "GET",
    "/v1/token",
  );
  if (status === 401) return undefined;
  return status === 403 ? "access" : (JSON.parse(text) as { kind: string }).kind;
}

function fileToken(daemon: TestDaemon): Promise<string> {
  return readFile(join(daemon.dir, "api.token"), "utf8").then((text) => text.trim());
}

/** Resolves as soon as the token file contains another token. */
async function fileChanges(daemon: TestDaemon, current: string): Promise<void> {
  const deadline = performance.now() + 10_000;
  while ((await fileToken(daemon)) === current && performance.now() < deadline);
}

function secondsFromNow(instant: Timestamp | undefined): number {
  return instant === undefined ? NaN : (timestampMs(instant) - Date.now()) / 1000;
}

test("issue, use, revoke, rotate and commit", async (t) => {
  const daemon = await emptyDaemon();
  const protocol = protocolOf(import.meta.url);
  const as = (token: string) => daemon.tokenClient(TokenService, protocol, token);
  const statusAs = (token: string) => daemon.tokenClient(DaemonService, protocol, token).getStatus({});
  const primary = as(daemon.token);
  const status = await primary.getTokenStatus({});
  t.like(status, {
    kind: "primary",
    accessTokens: 0,
    rotationOpen: false,
    primaryDigest: shortDigest(tokenDigest(daemon.token)),
  });
  t.is(status.graceUntil, undefined);
  t.true((await statusAs(daemon.token)).capabilities.includes("tokens"));
  t.like(await daemon.client(TokenService, protocol).getTokenStatus({}), { kind: "peer" });

  const issued = await primary.issueAccessToken({ label: "test" });
  t.regex(issued.token, /^svca_[A-Za-z0-9_-]{43}$/);
  t.true(Math.abs(secondsFromNow(issued.expiresAt) - 600) < 10);
  const short = await primary.issueAccessToken({ ttlSecs: 1 });
  t.like(await statusAs(issued.token), { caller: { root: true } });
  for (const ttlSecs of [0, 86_401]) {
    t.like(await errorOf(primary.issueAccessToken({ ttlSecs })), {
      code: "InvalidArgument",
      reason: "invalid_request",
    });
  }
  const access = as(issued.token);
  t.like(await errorOf(access.getTokenStatus({})), denied);
  t.like(await errorOf(access.issueAccessToken({})), denied);
  t.like(await errorOf(access.revokeAccessTokens({})), denied);
  t.like(await errorOf(access.rotatePrimaryToken({})), denied);
  t.like(await errorOf(access.commitPrimaryTokenRotation({})), denied);
  await eventually(async () => assert.deepEqual(await kindOf(daemon, short.token), undefined), 3_000);
  t.is((await primary.getTokenStatus({})).accessTokens, 1);

  t.is((await primary.revokeAccessTokens({})).revoked, 1);
  t.like(await errorOf(statusAs(issued.token)), unknown);
  const other = await primary.issueAccessToken({});

  t.like(await errorOf(primary.rotatePrimaryToken({ graceSecs: 86_401 })), { code: "InvalidArgument" });
  t.like(await primary.commitPrimaryTokenRotation({}), { committed: false });
  const rotated = await primary.rotatePrimaryToken({});
  t.is(rotated.revoked, 1);
  t.true(Math.abs(secondsFromNow(rotated.graceUntil) - 300) < 10);
  t.like(await errorOf(statusAs(other.token)), unknown);
  t.is(await fileToken(daemon), rotated.token);
  t.is((await stat(join(daemon.dir, "api.token"))).mode & 0o7777, 0o600);
  const fresh = as(rotated.token);
  t.like(await fresh.getTokenStatus({}), { kind: "primary", rotationOpen: true });
  t.like(await primary.getTokenStatus({}), { kind: "replaced", rotationOpen: true });
  t.like(await errorOf(primary.commitPrimaryTokenRotation({})), denied);
  t.like(await errorOf(primary.rotatePrimaryToken({})), denied);
  t.like(await fresh.commitPrimaryTokenRotation({}), { committed: true });
  t.like(await errorOf(primary.getTokenStatus({})), unknown);

  const last = await fresh.rotatePrimaryToken({ graceSecs: 0 });
  t.is(
    await kindOf(daemon, last.token),
    "primary",
    "a client that rotates without a grace period still gets the response",
  );
  t.is(await kindOf(daemon, rotated.token), undefined);
});

test("a console token is given to callers who may see the app, for a session as defined in the contract", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await apps.installApp({ spec: dir });
  const caller = daemon.tokenClient(AppService, protocolOf(import.meta.url), await fileToken(daemon));
  const issued = await caller.issueConsoleToken({ appId: "web", session: "attach" });
  t.regex(issued.token, /^svcc_[A-Za-z0-9_-]{43}$/);
  t.true(Math.abs(secondsFromNow(issued.expiresAt) - 30) < 5);
  t.is(await kindOf(daemon, issued.token), undefined, "it is not a bearer token");
  t.like(await errorOf(caller.issueConsoleToken({ appId: "nothing", session: "logs" })), {
    code: "NotFound",
    reason: "not_found",
  });
  t.like(await errorOf(caller.issueConsoleToken({ appId: "web", session: "root" })), {
    code: "InvalidArgument",
  });
});

rootTest(
  `regular users cannot manage tokens, and get console tokens only for their own apps${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const before = await fileToken(daemon);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await daemon.client(AppService).installApp({ spec: dir });
    await using user = await daemon.as(65534);
    const tokens = user.client(TokenService);
    const refused = { code: "PermissionDenied", reason: "root_required" };
    t.like(await errorOf(tokens.getTokenStatus({})), refused);
    t.like(await errorOf(tokens.issueAccessToken({})), refused);
    t.like(await errorOf(tokens.revokeAccessTokens({})), refused);
    t.like(await errorOf(tokens.rotatePrimaryToken({})), refused);
    t.like(await errorOf(tokens.commitPrimaryTokenRotation({})), refused);
    t.is(await fileToken(daemon), before);
    t.like(await errorOf(user.client(AppService).issueConsoleToken({ appId: "web", session: "logs" })), {
      code: "NotFound",
      reason: "not_found",
    });
  },
);

type Watched = { first: Promise<void>; end: Promise<{ code: string; atMs: number }> };

/** Reads a stream to its end, which must be an error. */
function watch(stream: AsyncIterable<unknown>): Watched {
  const { promise: first, resolve, reject } = Promise.withResolvers<undefined>();
  const seen = (async function* () {
    for await (const message of stream) {
      resolve(undefined);
      yield message;
    }
  })();
  const end = errorOf(seen).then(({ code, message }) => {
    reject(new Error(`ended before its first message: ${message}`));
    return { code, atMs: Date.now() };
  });
  first.catch(() => undefined);
  return { first, end };
}

for (const protocol of ["connect", "grpc"] satisfies Protocol[]) {
  test(`live streams end at once when their token is revoked (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    const tokens = daemon.client(TokenService);

    const streamsOf = (token: string): Watched[] => {
      const client = daemon.tokenClient(AppService, protocol, token);
      return [
        watch(client.streamAppLogs({ id: "web" })),
        watch(client.streamAppStats({ minIntervalSecs: 1 })),
      ];
    };
    const bystanders = streamsOf(await fileToken(daemon));
    await Promise.all(bystanders.map(({ first }) => first));
    const check = async (cause: string, token: string, act: () => Promise<number>): Promise<void> => {
      const streams = streamsOf(token);
      await Promise.all(streams.map(({ first }) => first));
      const actedMs = await act();
      for (const { end } of streams) {
        const { code, atMs } = await end;
        t.is(code, "Unauthenticated", cause);
        t.true(atMs - actedMs < 5_000, `${cause}: ended after ${atMs - actedMs} ms`);
      }
    };
    const now = (): number => Date.now();

    const revoked = await tokens.issueAccessToken({});
    await check("revoke", revoked.token, () => tokens.revokeAccessTokens({}).then(now));

    const expiring = await tokens.issueAccessToken({ ttlSecs: 5 });
    const expiresAtMs = timestampMs(expiring.expiresAt as Timestamp);
    await check("expiry", expiring.token, () => wait(expiresAtMs - Date.now()).then(() => expiresAtMs));

    const rotatedAway = await tokens.issueAccessToken({});
    await check("rotation", rotatedAway.token, () => tokens.rotatePrimaryToken({}).then(now));

    // The bystanders' token has been replaced: its streams continue until the commit.
    await wait(300);
    t.is(await Promise.race([...bystanders.map(({ end }) => end), Promise.resolve("open")]), "open");
    const committedMs = await tokens.commitPrimaryTokenRotation({}).then(now);
    for (const { end } of bystanders) {
      const { code, atMs } = await end;
      t.is(code, "Unauthenticated");
      t.true(atMs - committedMs < 5_000, `commit: ended after ${atMs - committedMs} ms`);
    }

    const current = await fileToken(daemon);
    await check("rotation without a grace", current, () =>
      tokens.rotatePrimaryToken({ graceSecs: 0 }).then(now),
    );
    await apps.removeApp({ id: "web" });
  });
}

test("a call in progress ends with its token, and a stop that it started continues", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  const stubborn = `process.on("SIGTERM", () => setTimeout(() => process.exit(), 8_000)); setInterval(() => {}, 1e6);`;
  await writePackage(dir, await freePort(), { files: { "server.mjs": stubborn } });
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const tokens = daemon.client(TokenService);
  const { token } = await tokens.issueAccessToken({});
  const call = errorOf(daemon.tokenClient(AppService, "grpc", token).stopApp({ id: "web" }));
  await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).state, "STOPPING"));
  await tokens.revokeAccessTokens({});
  const revokedMs = performance.now();
  t.like(await call, unknown);
  t.true(performance.now() - revokedMs < 5_000);
  await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).state, "STOPPED"), 40_000);
});

test("a daemon killed during a rotation restarts with one consistent state", async (t) => {
  await using daemon = await startDaemon();
  /** Every token that was ever in the file, oldest first. */
  const history = [daemon.token];
  let rotationMs = 0;
  const counts = { kept: 0, rotated: 0, acknowledged: 0 };
  for (let round = 0; round < 8; round++) {
    const current = await fileToken(daemon);
    const tokens = daemon.client(TokenService);
    // A daemon's first call is the slowest; the kill should hit the rotation.
    await tokens.getTokenStatus({});
    const begunMs = performance.now();
    let acknowledged: string | undefined;
    const answer = tokens.rotatePrimaryToken({ graceSecs: 86_400 }).then(
      ({ token }) => {
        acknowledged = token;
        rotationMs = performance.now() - begunMs;
      },
      () => undefined,
    );
    if (round === 0) await answer;
    // The critical moment: the new token is in the file, and no response has been sent.
    else if (round % 2 === 1) await fileChanges(daemon, current);
    else await Promise.race([answer, wait(Math.random() * rotationMs * 1.5)]);
    await daemon.kill();
    await answer;
    const inFile = await fileToken(daemon);
    if (acknowledged !== undefined) t.is(inFile, acknowledged, "an acknowledged rotation is not lost");
    counts[acknowledged !== undefined ? "acknowledged" : inFile === current ? "kept" : "rotated"]++;
    if (inFile !== current) history.push(inFile);
    await daemon.restart();
    const kinds = await Promise.all(history.map((token) => kindOf(daemon, token)));
    const expected = history.map((_token, at) => ["primary", "replaced"][history.length - 1 - at]);
    t.deepEqual(kinds, expected, `round ${round}`);
  }
  t.log(JSON.stringify(counts));
});

async function svc(daemon: TestDaemon, ...args: string[]): Promise<SvcRun> {
  return runSvc([...args, "--socket", daemon.socketPath], { host: { now: Date.now } });
}

test("svc token: status, issue, revoke, rotate and commit", async (t) => {
  const daemon = await emptyDaemon();
  const before = await fileToken(daemon);
  const first = await svc(daemon, "token");
  t.regex(
    first.stdout,
    /^You: +the daemon's own user on this machine.*\nPrimary token: +SHA-256 [0-9a-f]{12}…\nAccess tokens: 0 live\nSessions: +0 open\nRotation: +none\n$/,
  );
  const issued = await svc(daemon, "token", "issue", "--ttl", "60", "--label", "a script");
  t.regex(issued.stdout, /^svca_[A-Za-z0-9_-]{43}\n$/, "only the token, for $(…)");
  t.regex(issued.stderr, /^The token is valid for (1m|59s) and is not shown again\.\n$/);
  t.is(await kindOf(daemon, issued.stdout.trim()), "access");
  const json = JSON.parse((await svc(daemon, "token", "issue", "--json")).stdout) as Record<string, string>;
  t.deepEqual(Object.keys(json).toSorted(), ["expires_at", "token"]);
  t.is((await svc(daemon, "token", "revoke")).stdout, "Ended 2 access tokens\n");
  t.is((await svc(daemon, "token", "revoke", "--json")).stdout, '{\n  "revoked": 0\n}\n');
  await svc(daemon, "token", "issue");
  const rotated = await svc(daemon, "token", "rotate", "--grace", "2m");
  t.is(rotated.stdout, `${await fileToken(daemon)}\n`);
  t.regex(
    rotated.stderr,
    /^Ended 1 access token\.\nThe old primary token is valid for (2m|1m 59s)\. Revoke it sooner: svc token commit\n$/,
  );
  const open = await svc(daemon, "token", "status");
  t.regex(open.stdout, /Rotation: +open for (1m|2m)/);
  t.regex(open.stderr, /svc token commit/);
  t.is((await svc(daemon, "token", "commit")).stdout, "The replaced primary token was revoked\n");
  t.is((await svc(daemon, "token", "commit")).stdout, "No rotation is open\n");
  t.is(await kindOf(daemon, before), undefined);
  for (const args of [
    ["issue", "--ttl", "0"],
    ["issue", "--ttl", "25h"],
    ["rotate", "--grace", "86401"],
  ]) {
    const refused = await svc(daemon, "token", ...args);
    t.is(refused.exitCode, 2);
    t.regex(refused.stderr, /must be a time such as 90s or 10m, from [01] to 86400 seconds/);
  }
});

test("without a daemon, the primary token can be rotated and access tokens cannot", async (t) => {
  const home = await mkdtemp(join(tmpdir(), "svc-home-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));
  const uid = process.getuid?.() ?? 0;
  const svcAlone = (...args: string[]): Promise<SvcRun> =>
    runSvc(["token", ...args], {
      host: { now: Date.now, uid },
      dependencies: {
        // A regular user's paths, which derive from the home directory.
        openInProcess: (host) =>
          openInProcess(host, { environment: { uid: 65534, home, env: {} }, programs }),
      },
    });
  t.regex((await svcAlone("status")).stdout, /^You: +the daemon's own user on this machine/);
  for (const name of ["issue", "revoke"]) {
    const refused = await svcAlone(name);
    t.is(refused.exitCode, 5);
    t.regex(refused.stderr, /access tokens need a daemon.*svc daemon/);
  }
  const { stdout } = await svcAlone("rotate");
  t.is(await readFile(join(home, ".config/svc/api.token"), "utf8"), stdout);
  t.regex((await svcAlone("status")).stdout, /Rotation: +open for/);
  t.is((await svcAlone("commit")).stdout, "The replaced primary token was revoked\n");
});

/** Every file below a directory except the token file. */
async function filesBelow(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name !== "api.token")
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Arguments and environments of all readable processes. */
async function processTexts(): Promise<string> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const files = pids.flatMap((pid) => [`/proc/${pid}/cmdline`, `/proc/${pid}/environ`]);
  return (await Promise.all(files.map((file) => readFile(file, "latin1").catch(() => "")))).join("\n");
}

test("a token appears only in its file and in the response that returned it", async (t) => {
  await using daemon = await startDaemon({ config: '[log]\nlevel = "debug"' });
  const answers: string[] = [];
  const send = async (token: string, method: string, path: string, body?: string): Promise<string> => {
    const { text, headers } = await sendRest(
      { port: daemon.port, headers: { authorization: `Bearer ${token}` } },
      method,
      path,
      body,
    );
    answers.push(text + JSON.stringify(headers));
    return text;
  };
  const told = async (token: string, path: string, body = "{}"): Promise<string> => {
    const text = await send(token, "POST", path, body);
    answers.pop();
    return (JSON.parse(text) as { token: string }).token;
  };
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const access = await told(daemon.token, "/v1/token/access", '{"label":"canary"}');
  const console = await told(access, "/v1/apps/web/console-token", '{"session":"logs"}');
  const fresh = await told(daemon.token, "/v1/token/rotate");
  const later = await told(fresh, "/v1/token/access");
  const secrets = [daemon.token, access, console, fresh, later, mintToken("access")];

  for (const token of secrets) {
    // An unrecognized token gets a response, and too many of them close the connection.
    const answer = await send(token, "GET", "/v1/status");
    if (answer.includes('"unauthenticated"')) continue;
    await send(token, "GET", "/v1/token");
    await send(token, "POST", "/v1/token/access", '{"ttl_secs": 0}');
    await send(token, "POST", "/v1/token/access", "{");
    await send(token, "GET", "/v1/nothing");
    await send(token, "POST", "/v1/apps/nothing/start");
    await send(token, "GET", "/v1/apps/web/logs");
    for (const protocol of ["connect", "grpc"] satisfies Protocol[]) {
      const seen = await errorOf(daemon.tokenClient(AppService, protocol, token).getApp({ id: "nothing" }));
      answers.push(JSON.stringify(seen));
    }
  }
  await send(fresh, "POST", "/v1/token/rotate/commit", "{}");
  await svc(daemon, "token", "status").then(({ stdout, stderr }) => answers.push(stdout, stderr));
  await assertNoTrace(t, "while it runs", daemon, answers, secrets);
  await apps.removeApp({ id: "web" });
  await daemon.stop();
  await assertNoTrace(t, "after it stopped", daemon, answers, secrets);
});

async function assertNoTrace(
  t: ExecutionContext,
  when: string,
  daemon: TestDaemon,
  answers: readonly string[],
  secrets: readonly string[],
): Promise<void> {
  const files = await filesBelow(daemon.dir);
  t.true(files.some((file) => file.endsWith("svc.db")));
  const places: [string, string][] = [
    ["the log", daemon.log()],
    ["answers", answers.join("\n")],
    ["arguments and environments", await processTexts()],
    ...(await Promise.all(
      files.map(async (file): Promise<[string, string]> => [
        file,
        await readFile(file, "latin1").catch(() => ""),
      ]),
    )),
  ];
  t.regex(daemon.log(), /"label":"canary"/, "the log has the events");
  for (const [place, text] of places) {
    for (const secret of secrets) t.false(text.includes(secret.slice(5)), `${when}: ${place}`);
  }
}
