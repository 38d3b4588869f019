/** Audit records of a real daemon: every transport, every kind of caller, the CLI, and no secrets. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService, type AuditRecord } from "../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { storeCheck } from "../support/store-check.ts";
import { Exchange, type ExchangeTarget, type FuzzAnswer } from "../fuzz/exchange.ts";
import { Random } from "../fuzz/random.ts";
import { randomRequest, type FuzzRequest } from "../fuzz/requests.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, protocols, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";
import { asUserWithoutSvc } from "../support/without-svc.ts";

/** All calls of a test are recorded before it ends, so that the next test's records follow. */
const emptyDaemon = sharedDaemon();

/** The number of the last record. */
async function lastSeq(daemon: TestDaemon): Promise<bigint> {
  const { records } = await daemon.client(AuditService).listAudit({ limit: 1 });
  return records[0]?.seq ?? 0n;
}

/** The records after that number, oldest first, once there are at least `count`. */
async function auditOf(daemon: TestDaemon, count: number, after = 0n): Promise<AuditRecord[]> {
  return eventually(async () => {
    const { records } = await daemon.client(AuditService).listAudit({});
    const later = records.filter(({ seq }) => seq > after);
    assert.equal(later.length, count);
    return later.toReversed();
  });
}

async function svc(daemon: TestDaemon, ...args: string[]) {
  const child = spawn(process.execPath, [main, "--socket", daemon.socketPath, ...args], {
    env: { PATH: process.env["PATH"] ?? "", HOME: daemon.dir },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { out: "", err: "" };
  child.stdout.on("data", (chunk) => (output.out += String(chunk)));
  child.stderr.on("data", (chunk) => (output.err += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  return { code, ...output };
}

test("a changing call over each protocol is one record, successful or denied; reading is not recorded", async (t) => {
  const daemon = await emptyDaemon();
  const before = await lastSeq(daemon);
  for (const protocol of protocols) {
    const apps = daemon.client(AppService, protocol);
    await apps.listApps({});
    t.is((await errorOf(apps.stopApp({ id: `missing-${protocol}` }))).code, "NotFound");
    t.is((await errorOf(apps.installApp({}))).reason, "invalid_request");
    await errorOf(apps.installAppStream({ spec: "no-such-package" }));
  }
  const records = await auditOf(daemon, protocols.length * 3 - 1, before);
  const of = (protocol: string) =>
    records
      .filter((record) => record.protocol === protocol)
      .map(({ method, target, result, reason }) => [method.split("/")[1], target, result, reason]);
  for (const protocol of protocols) {
    const streamed = ["InstallAppStream", "no-such-package", "not_found", "not_found"];
    t.deepEqual(of(protocol), [
      ["StopApp", `missing-${protocol}`, "not_found", "not_found"],
      ["InstallApp", "", "invalid_argument", "invalid_request"],
      // It has no REST route.
      ...(protocol === "rest" ? [] : [streamed]),
    ]);
  }
  t.true(records.every(({ requestId, hash }) => requestId !== "" && /^[0-9a-f]{64}$/.test(hash)));
  t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true, problem: "" });
});

test("callers are recorded distinctly: peers, tokens by their digest, and denied ones", async (t) => {
  const daemon = await emptyDaemon();
  const before = await lastSeq(daemon);
  await daemon.tokenClient(TokenService).issueAccessToken({ label: "robot" });
  const { token } = await daemon.client(TokenService).issueAccessToken({});
  t.is(
    (await errorOf(daemon.tokenClient(TokenService, "grpc", token).revokeAccessTokens({}))).reason,
    "token_denied",
  );
  const records = await auditOf(daemon, 3, before);
  const digest = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 12);
  t.deepEqual(
    records.map(({ kind, uid, peerUid, tokenDigest, result }) => [kind, uid, peerUid, tokenDigest, result]),
    [
      ["primary", process.getuid?.(), undefined, digest(daemon.token), "ok"],
      ["peer", process.getuid?.(), process.getuid?.(), "", "ok"],
      ["access", process.getuid?.(), undefined, digest(token), "permission_denied"],
    ],
  );
});

const rootTest = isRoot ? test : test.skip;
rootTest(
  `another user's denied calls are recorded as theirs, and only root reads the trail${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const before = await lastSeq(daemon);
    await using nobody = await daemon.as(65_534);
    for (const protocol of protocols) {
      const { reason } = await errorOf(nobody.client(AuditService, protocol).listAudit({}));
      t.is(reason, "root_required", protocol);
      t.is((await errorOf(nobody.client(AuditService, protocol).verifyAudit({}))).reason, "root_required");
      await errorOf(nobody.client(BackupService, protocol).removeBackupStorage({ name: "x" }));
    }
    const records = await auditOf(daemon, protocols.length, before);
    for (const record of records) {
      t.like(record, { uid: 65_534, user: "nobody", peerUid: 65_534, reason: "root_required" });
    }
    t.is((await daemon.client(AuditService).listAudit({ uid: 65_534, limit: 1 })).records.length, 1);
    t.is(
      (await errorOf(daemon.client(AuditService).listAudit({ method: "Nonsense" }))).code,
      "InvalidArgument",
    );
    t.is((await daemon.client(AuditService).listAudit({ method: "removebackupstorage" })).records.length, 4);
  },
);

test("no secret and no body appears in the trail, the log or the database", async (t) => {
  const daemon = await emptyDaemon();
  const before = await lastSeq(daemon);
  const canary = "canary-3f1e9b";
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  const { id } = await apps.installApp({ spec: dir });
  await errorOf(apps.updateAppSettings({ id, values: { colour: canary } }));
  await errorOf(apps.installApp({ spec: `https://user:${canary}@127.0.0.1:1/x.git` }));
  await errorOf(apps.installApp({ spec: `https://127.0.0.1:1/x.git?token=${canary}` }));
  const { token } = await daemon.client(TokenService).issueAccessToken({ label: canary });
  await apps.removeApp({ id });
  await auditOf(daemon, 6, before);
  await daemon.stop();
  const files = (await readdir(daemon.storeDir)).filter((name) => name.startsWith("svc.db"));
  const texts = await Promise.all(files.map((name) => readFile(join(daemon.storeDir, name), "latin1")));
  for (const secret of [canary, daemon.token, token]) {
    t.false(
      texts.some((text) => text.includes(secret)),
      `${secret.slice(0, 6)}… is in the database`,
    );
  }
  for (const secret of [daemon.token, token]) t.false(daemon.log().includes(secret), "a token is in the log");
});

test("the trail survives a crash of the daemon, and continues after it", async (t) => {
  const daemon = await emptyDaemon();
  const before = await lastSeq(daemon);
  await errorOf(daemon.client(AppService).stopApp({ id: "first" }));
  await auditOf(daemon, 1, before);
  await daemon.kill();
  await daemon.restart();
  await errorOf(daemon.client(AppService).stopApp({ id: "second" }));
  const records = await auditOf(daemon, 2, before);
  t.deepEqual(
    records.map(({ seq, target }) => [seq - before, target]),
    [
      [1n, "first"],
      [2n, "second"],
    ],
  );
  t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true, records: before + 2n });
});

test("svc audit shows and verifies it, and escapes control characters", async (t) => {
  await using daemon = await startDaemon();
  await errorOf(daemon.client(AppService).stopApp({ id: "web" }));
  await errorOf(daemon.client(AppService).installApp({ spec: "evil\u001b[2J\u202e" }));
  await auditOf(daemon, 2);
  const table = await svc(daemon, "audit");
  t.is(table.code, 0, table.err);
  t.regex(table.out, /AppService\.StopApp +web +not_found/);
  t.regex(table.out, /evil\\x1b\[2J\\u202e/);
  t.notRegex(table.out, /\u001b\[2J/);
  const json = await svc(daemon, "audit", "--json", "--method", "StopApp", "--limit", "5");
  t.like((JSON.parse(json.out) as { records: object[] }).records[0], { seq: 1, target: "web", peer_uid: 0 });
  const verified = await svc(daemon, "audit", "--verify");
  t.is(verified.code, 0);
  t.regex(verified.out, /chain: +holds\n/);

  const { DatabaseSync } = await import("node:sqlite");
  const database = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  database.exec("UPDATE audit SET target = 'api' WHERE seq = 1");
  database.close();
  const broken = await svc(daemon, "audit", "--verify");
  t.is(broken.code, 1);
  t.regex(broken.out, /chain: +broken\n/);
  t.regex(broken.out, /record 1 is not what was written/);
});

/** The home of a regular user, whose commands find no daemon. */
async function createHome() {
  const dir = await mkdtemp(join(tmpdir(), "svc-home-"));
  await chmod(dir, 0o777);
  const begin = (...args: string[]) => {
    const [command = "", ...rest] = [...asUserWithoutSvc, process.execPath, main, ...args];
    const child = spawn(command, rest, {
      env: {
        PATH: process.env["PATH"] ?? "",
        HOME: dir,
        XDG_STATE_HOME: join(dir, "state"),
        XDG_CONFIG_HOME: join(dir, "config"),
        XDG_RUNTIME_DIR: join(dir, "runtime"),
      },
      stdio: ["pipe", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk) => (output += String(chunk)));
    }
    const ended = once(child, "close").then(([code]) => ({ code: code as number | null, output }));
    return { child, ended };
  };
  const records = async () => {
    const { output } = await begin("audit", "--json").ended;
    return (JSON.parse(output) as { records: object[] }).records;
  };
  return { dir, begin, records, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}

test("a command without a daemon is recorded, too", async (t) => {
  await using home = await createHome();
  t.is((await home.begin("app", "stop", "missing").ended).code, 3);
  const records = await home.records();
  t.is(records.length, 1);
  t.like(records[0], {
    method: "svc.v1.AppService/StopApp",
    protocol: "in-memory",
    kind: "local",
    uid: isRoot ? 65_534 : process.getuid?.(),
    target: "missing",
    result: "not_found",
  });
});

test("an interrupted command without a daemon is recorded, and reports only that", async (t) => {
  await using home = await createHome();
  const files = join(home.dir, "files");
  await mkdir(files);
  await chmod(files, 0o777);
  const { child, ended } = home.begin("file", "put", "-", join(files, "file"));
  // This much is transferred once the call reads it.
  await new Promise((resolve) => child.stdin.write(Buffer.alloc(4 * 1024 * 1024), resolve));
  child.kill("SIGINT");
  t.deepEqual(await ended, { code: 130, output: "svc: the call was canceled\n" });
  t.deepEqual(await readdir(files), []);
  t.like(await home.records(), [{ method: "svc.v1.FileService/WriteFile", result: "canceled" }]);
});

test("a flood of unknown callers results in a few records with its size, and the metrics count each attempt", async (t) => {
  const daemon = await emptyDaemon();
  const before = await lastSeq(daemon);
  await errorOf(daemon.client(AppService).stopApp({ id: "missing" }));
  const url = `http://127.0.0.1:${daemon.port}/v1/apps/web/start`;
  const tries = 300;
  for (let n = 0; n < tries; n++) {
    const { status } = await fetch(url, { method: "POST", headers: { authorization: "Bearer svcp_wrong" } });
    assert.ok([401, 429].includes(status));
  }
  const first = await auditOf(daemon, 3, before);
  t.deepEqual(
    first.map(({ kind, address, method, result, attempts }) => [
      kind,
      address,
      method.split("/")[1],
      result,
      attempts,
    ]),
    [
      ["peer", "", "StopApp", "not_found", 1],
      ["anonymous", "127.0.0.1", "StartApp", "unauthenticated", 1],
      ["anonymous", "127.0.0.1", "StartApp", "resource_exhausted", 1],
    ],
  );
  const headers = { authorization: `Bearer ${daemon.token}` };
  const metrics = await (await fetch(`http://127.0.0.1:${daemon.port}/metrics`, { headers })).text();
  const counted = [
    ...metrics.matchAll(/AppService\/StartApp",code="(?:unauthenticated|resource_exhausted)"\} (\d+)/g),
  ].map((match) => Number(match[1]));
  t.is(
    counted.reduce((sum, count) => sum + count, 0),
    tries,
  );

  await daemon.restart();
  const records = (await auditOf(daemon, 5, before)).slice(1);
  t.is(
    records.reduce((sum, { attempts }) => sum + attempts, 0),
    tries,
    "stopping records the counts",
  );
  t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true });
});

// `svc doctor` and `svc audit --verify` agree about the audit trail, whoever called.

const users = [4001, 4002] as const;
/** 10,000 take two minutes. */
const requests = process.env["SVC_LONG"] === undefined ? 1_000 : 10_000;
const concurrency = 20;

/** Methods that would affect the daemon's host, its tokens, sessions or this test, or change files of the host. */
const leftOut = /system|process|file|docker|rotat|revoke|restore|backup|EndSession|DELETE .*sessions/i;
const changing = routes.filter(
  ({ httpMethod, template, method }) =>
    httpMethod !== "GET" &&
    !leftOut.test(`${httpMethod} ${template.source} ${method.parent.name} ${method.name}`),
);

interface Caller {
  readonly name: string;
  readonly target: ExchangeTarget;
  readonly headers: Readonly<Record<string, string>>;
  /** Whether it may call everything, so that it must not send random messages to all methods. */
  readonly isRoot: boolean;
}

/** A call over REST of a method that changes something, which names objects that do not exist. */
function changingRequest(random: Random): FuzzRequest {
  const { httpMethod: method, template } = random.pick(changing);
  const path = template.source.replaceAll(/\{[^}]*\}/g, () => `none-${random.integer(50)}`);
  const body = method === "DELETE" ? "" : random.pick(["{}", '{"name": "x"}', "{"]);
  const headers = { "content-type": "application/json" };
  return { kind: "valid", protocol: "REST", http: "1.1", method, path, headers, body: Buffer.from(body) };
}

/** Whether the request is left out for this caller. Root sends random messages only to methods that do no harm to it. */
function isLeftOut({ method, path, headers }: FuzzRequest, { isRoot }: Caller): boolean {
  return leftOut.test(`${method} ${path}`) || (isRoot && headers["authorization"] === "Bearer svcp_wrong");
}

/** The request as this caller sends it. */
function asCaller(request: FuzzRequest, caller: Caller): FuzzRequest {
  const { authorization: _authorization, ...headers } = request.headers;
  return { ...request, headers: { ...headers, ...caller.headers } };
}

/** Root, users, and every kind of token, right, wrong and expired. */
async function callersOf(
  daemon: TestDaemon,
  sockets: readonly { readonly socketPath: string }[],
): Promise<readonly Caller[]> {
  const { port, socketPath } = daemon;
  const replaced = daemon.token;
  const { token: primary } = await daemon
    .tokenClient(TokenService, "rest")
    .rotatePrimaryToken({ graceSecs: 3_600 });
  const asPrimary = daemon.tokenClient(TokenService, "rest", primary);
  const { token: access } = await asPrimary.issueAccessToken({});
  const short = await asPrimary.issueAccessToken({ ttlSecs: 1 });
  const sessions = daemon.client(SessionService);
  const open = async (code: string) => daemon.tokenClient(SessionService, "rest", code).openSession({});
  const { code: used } = await sessions.issueSessionCode({});
  const { token: rootSession } = await open(used);
  const { code: unused } = await sessions.issueSessionCode({});
  const link = await sessions.issueSessionCode({ ttlSecs: 1 });
  const userSessions = await Promise.all(
    users.map(async (uid) => {
      await using user = await daemon.as(uid);
      return await open((await user.client(SessionService).issueSessionCode({})).code);
    }),
  );
  const [{ token: userSession } = { token: "" }, { token: ended } = { token: "" }] = userSessions;
  await daemon.tokenClient(SessionService, "rest", ended).endSessions({});
  const expiresMs = Math.max(
    ...[short, link].map(({ expiresAt }) => (expiresAt ? timestampMs(expiresAt) : 0)),
  );
  await eventually(() => assert.ok(Date.now() > expiresMs, "the link and the token expire"));
  const bearer = (name: string, token: string, isRoot = false): Caller => ({
    ...{ name, isRoot, target: { host: "127.0.0.1", port } },
    headers: { authorization: `Bearer ${token}` },
  });
  return [
    { name: "root", target: { socketPath }, headers: {}, isRoot: true },
    {
      name: "sudo",
      target: { socketPath },
      headers: { "x-svc-sudo-uid": "4001", "x-svc-sudo-gid": "4001" },
      isRoot: true,
    },
    ...sockets.map(({ socketPath }, at) => ({
      name: `user ${users[at]}`,
      target: { socketPath },
      headers: {},
      isRoot: false,
    })),
    bearer("primary token", primary, true),
    bearer("replaced token", replaced, true),
    bearer("access token", access, true),
    bearer("session of root", rootSession, true),
    bearer("session of a user", userSession),
    bearer("ended session", ended),
    bearer("unused link", unused),
    bearer("used link", used),
    bearer("expired link", link.code),
    bearer("expired access token", short.token),
    bearer("wrong token", "wrong"),
    { name: "anonymous", target: { host: "127.0.0.1", port }, headers: {}, isRoot: false },
  ];
}

rootTest(`doctor accepts the audit record of a call with a wrong token${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  t.like(await errorOf(daemon.tokenClient(TokenService, "rest", "wrong").revokeAccessTokens({})), {
    reason: "unauthenticated",
  });
  await daemon.stop();
  t.regex(await storeCheck(daemon), /^ok: /);
});

rootTest(
  `doctor and verify agree after thousands of requests by every kind of caller${needsRoot}`,
  async (t) => {
    t.timeout(900_000);
    const seed = Number(process.env["SVC_SEED"] ?? Date.now() % 2 ** 32);
    t.log(`seed ${seed}`);
    const random = new Random(seed);
    await using daemon = await startDaemon({
      config: "[api.limits]\ntoken_failure_budget = 1000000\nreset_budget = 1000000\n",
    });
    await using ann = await daemon.as(users[0]);
    await using ben = await daemon.as(users[1]);
    const callers = await callersOf(daemon, [ann, ben]);
    const wrong = callers.find(({ name }) => name === "wrong token")!;
    const answers = new Map<string, number>();
    let left = requests;
    const work = async (): Promise<void> => {
      using exchanges = new DisposableStack();
      const open = new Map(callers.map((caller) => [caller, exchanges.use(new Exchange(caller.target))]));
      while (left > 0) {
        left--;
        const request = random.once(2) ? changingRequest(random) : randomRequest(random, "its own");
        const picked = random.pick(callers);
        const caller = isLeftOut(request, picked) ? wrong : picked;
        const answer = await open.get(caller)!.send(asCaller(request, caller));
        const key = outcome(answer);
        answers.set(key, (answers.get(key) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
    t.log(Object.fromEntries([...answers].toSorted()));
    for (const expected of ["400", "401", "403", "404", "gRPC 16"])
      t.true((answers.get(expected) ?? 0) > 10, `answers with ${expected}`);
    t.deepEqual(daemon.log().match(/.*unexpected error in.*/g), null);
    t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true, problem: "" });
    t.regex(await storeCheck(daemon), /^ok: /);
    await daemon.stop();
    t.regex(await storeCheck(daemon), /^ok: /, "counted calls are recorded when the daemon stops");
  },
);

function outcome({ status, grpcStatus }: FuzzAnswer): string {
  return grpcStatus === undefined ? String(status) : `gRPC ${grpcStatus}`;
}
