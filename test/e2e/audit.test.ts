/** Audit records of a real daemon: every transport, every kind of caller, the CLI, and no secrets. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService, type AuditRecord } from "../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
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
