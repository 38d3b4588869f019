/** Backups in a bucket through the API: the same as in a directory, and beside one. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { startFaultProxy } from "../../support/fault-proxy.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { hasS3Server, needsS3Server, startS3Server, type S3Server } from "../../support/s3-server.ts";

const s3Test = hasS3Server ? test : test.skip;
const mib = 1 << 20;
const emptyDaemon = sharedDaemon();

async function install(daemon: TestDaemon): Promise<string> {
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const { directory } = await daemon.client(AppService).installApp({ spec: dir });
  return directory;
}

function addBucket(daemon: TestDaemon, name: string, server: S3Server, endpoint = server.endpoint) {
  const { bucket, accessKey, secretKey } = server;
  return daemon.client(BackupService).upsertBackupStorage({
    name,
    location: { case: "s3", value: { endpoint, bucket, accessKey, secretKey, prefix: name } },
  });
}

s3Test(
  `an archive in a bucket is listed, verified, browsed, restored and rotated${needsS3Server}`,
  async (t) => {
    await using server = await startS3Server();
    await using proxy = await startFaultProxy(server.port);
    const daemon = await emptyDaemon();
    const backups = daemon.client(BackupService);
    const directory = await install(daemon);
    const data = join(directory, "data");
    await writeFile(join(data, "notes"), "one");
    for (let n = 0; n < 5; n++) await writeFile(join(data, `bulk${n}`), randomBytes(8 * mib));
    await addBucket(daemon, "far", server, proxy.endpoint);
    const made = await backups.createBackup({ appId: "web", storages: ["far", "local"] });
    t.deepEqual(
      made.results.map(({ storage, error }) => [storage, error]),
      [
        ["far", ""],
        ["local", ""],
      ],
    );
    const ref = { appId: "web", storage: "far", name: made.results[0]?.name ?? "" };
    const stored = await readFile(join(server.dir, server.bucket, "far/web", ref.name));
    t.true(stored.equals(await readFile(join(daemon.storeDir, "backups/web", ref.name))));
    const { backups: listed } = await backups.listBackups({ appId: "web" });
    t.deepEqual(listed.map(({ storage }) => storage).toSorted(), ["far", "local"]);

    t.is((await backups.verifyBackup(ref)).entries, made.entries);
    t.true((await backups.browseBackup({ ...ref, path: "data" })).entries.length === 6);
    const before = proxy.sentBytes;
    const pieces = await Array.fromAsync(backups.readBackupFile({ ...ref, path: "data/notes" }));
    t.is(Buffer.concat(pieces.map(({ content }) => content?.data ?? new Uint8Array())).toString(), "one");
    t.true(proxy.sentBytes - before < 3 * 4 * mib + mib, "one file downloads only its frames and the index");

    await writeFile(join(data, "notes"), "other");
    await backups.restoreBackup(ref);
    t.is(await readFile(join(data, "notes"), "utf8"), "one");

    const again = await backups.createBackup({ appId: "web", storages: ["far"], keep: 1 });
    // The archive was verified, so rotation never removes it.
    t.deepEqual(again.results[0]?.removed, []);
    const third = await backups.createBackup({ appId: "web", storages: ["far"], keep: 1 });
    t.deepEqual(third.results[0]?.removed, [again.results[0]?.name]);
    await backups.deleteBackup(ref);
    t.deepEqual(
      (await readdir(join(server.dir, server.bucket, "far/web"))).filter((name) => name.endsWith(".zst")),
      [third.results[0]?.name ?? ""],
    );
  },
);

s3Test(`a slow bucket does not delay other storages${needsS3Server}`, async (t) => {
  await using server = await startS3Server();
  await using proxy = await startFaultProxy(server.port);
  const daemon = await emptyDaemon();
  await install(daemon);
  await addBucket(daemon, "far", server, proxy.endpoint);
  proxy.fault = ({ method }) => (method === "PUT" ? { kind: "late", ms: 4_000 } : undefined);
  const backup = daemon.client(BackupService).createBackup({ appId: "web", storages: ["far", "local"] });
  const whole = (dir: string) => readdir(dir).then((names) => names.filter((name) => name.endsWith(".zst")));
  await eventually(async () => {
    assert.equal((await whole(join(daemon.storeDir, "backups/web"))).length, 1);
  });
  t.deepEqual(await whole(join(server.dir, server.bucket, "far/web")).catch(() => []), []);
  t.like(await backup, { results: [{ error: "" }, { error: "" }] });
});

s3Test(
  `an unreachable bucket affects nothing else, is retried, and its secrets appear nowhere${needsS3Server}`,
  async (t) => {
    await using server = await startS3Server();
    await using proxy = await startFaultProxy(server.port);
    const daemon = await emptyDaemon();
    const backups = daemon.client(BackupService);
    await install(daemon);
    const stored = await addBucket(daemon, "far", server, proxy.endpoint);
    await addBucket(daemon, "near", server);
    const all = (await backups.testBackupStorage({ name: "far" })).checks;
    t.deepEqual(
      all.map(({ name, ok, error }) => [name, ok, error]),
      ["list", "write", "read", "delete"].map((name) => [name, true, ""]),
    );
    t.deepEqual(
      (await backups.testBackupStorage({ name: "local" })).checks.map(({ ok }) => ok),
      [true, true, true, true],
    );
    t.deepEqual((await backups.listBackups({})).backups, []);
    t.deepEqual(await readdir(join(server.dir, server.bucket, "far")).catch(() => []), []);

    proxy.fault = ({ method }) =>
      method === "PUT" ? { kind: "answer", status: 403, code: "AccessDenied" } : undefined;
    const refused = (await backups.testBackupStorage({ name: "far" })).checks;
    t.deepEqual(
      refused.map(({ ok }) => ok),
      [true, false, false, false],
    );
    t.regex(refused[1]?.error ?? "", /denies access to the bucket .*: backups fail/);

    proxy.fault = () => ({ kind: "answer", status: 403, code: `AccessDenied ${server.secretKey}` });
    const { results } = await backups.createBackup({ appId: "web", storages: ["far", "near", "local"] });
    t.deepEqual(
      results.map(({ error }) => error === ""),
      [false, true, true],
    );
    const list = await backups.listBackups({ appId: "web" });
    t.is(list.backups.length, 2);
    t.is(list.errors.length, 1);
    t.like(list.errors[0], { storage: "far" });

    // A storage that is written back as it was read keeps its credentials, unless its server changes.
    t.like(stored.location, { case: "s3", value: { endpoint: proxy.endpoint } });
    proxy.fault = () => undefined;
    const value = { endpoint: proxy.endpoint, bucket: server.bucket, prefix: "far" };
    await backups.upsertBackupStorage({ name: "far", location: { case: "s3", value } });
    t.true((await backups.testBackupStorage({ name: "far" })).checks.every(({ ok }) => ok));
    const elsewhere = { case: "s3", value: { ...value, endpoint: "http://127.0.0.1:9" } } as const;
    t.like(await errorOf(backups.upsertBackupStorage({ name: "far", location: elsewhere })), {
      reason: "invalid_request",
    });
    const shown = JSON.stringify(
      [await backups.listBackupStorages({}), results, list, refused],
      (_, each: unknown) => (typeof each === "bigint" ? String(each) : each),
    );
    for (const text of [shown, daemon.log()]) {
      t.false(text.includes(server.secretKey));
      t.false(text.includes(server.accessKey));
    }
  },
);

s3Test(`the next daemon cleans up the upload of a killed one${needsS3Server}`, async (t) => {
  await using server = await startS3Server();
  await using proxy = await startFaultProxy(server.port);
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const directory = await install(daemon);
  await writeFile(join(directory, "data/bulk"), randomBytes(20 * mib));
  await addBucket(daemon, "far", server, proxy.endpoint);
  const uploads = () =>
    readdir(join(server.dir, server.bucket, ".sgwtmp/multipart"), { recursive: true }).catch(() => []);
  const isEnd = ({ method, url }: { method: string; url: string }) =>
    method === "POST" && url.includes("uploadId=");
  for (const isWhole of [false, true]) {
    const reached = Promise.withResolvers<undefined>();
    proxy.fault = (request) => {
      if (!isEnd(request)) return undefined;
      reached.resolve(undefined);
      return isWhole ? { kind: "lose-answer" } : { kind: "stall" };
    };
    const making = backups.createBackup({ appId: "web", storages: ["far"] });
    making.catch(() => undefined);
    await reached.promise;
    if (isWhole) await eventually(async () => assert.equal((await uploads()).length, 0));
    await daemon.kill();
    proxy.fault = () => undefined;
    if (!isWhole) t.not((await uploads()).length, 0);
    await daemon.restart();
    await eventually(() => assert.match(daemon.log(), new RegExp(`"isComplete":${isWhole}`)), 60_000);
    t.is((await uploads()).length, 0);
    t.is((await backups.listBackups({ appId: "web" })).backups.length, isWhole ? 1 : 0);
    t.deepEqual(await readdir(join(daemon.storeDir, "spool")), []);
  }
  // The next daemon rotates completed uploads.
  const { results } = await backups.createBackup({ appId: "web", storages: ["far"], keep: 1 });
  t.is(results[0]?.removed.length, 1);
});

s3Test(
  `the remains of a failed upload are removed at once or later, and no older archive is removed for it${needsS3Server}`,
  async (t) => {
    await using server = await startS3Server();
    await using proxy = await startFaultProxy(server.port);
    const daemon = await emptyDaemon();
    await install(daemon);
    await addBucket(daemon, "far", server, proxy.endpoint);
    const make = async (keep?: number) => {
      const request = { appId: "web", storages: ["far"], ...(keep && { keep }) };
      const [result] = (await daemon.client(BackupService).createBackup(request)).results;
      return { name: "", error: "", removed: [], ...result };
    };
    const stored = async (): Promise<string[]> => {
      const names = await readdir(join(server.dir, server.bucket, "far/web"));
      return names.filter((name) => name.endsWith(".zst")).toSorted();
    };
    const older = [(await make()).name, (await make()).name];
    // The upload exists, but svc cannot know that.
    const refused = new Set(["HEAD"]);
    proxy.fault = ({ method }) =>
      refused.has(method) ? { kind: "answer", status: 403, code: "AccessDenied" } : undefined;
    const failed = await make(1);
    t.not(failed.error, "");
    t.deepEqual(failed.removed, []);
    t.deepEqual(await stored(), older);

    refused.add("DELETE");
    t.not((await make(1)).error, "");
    t.is((await stored()).length, 3);
    const store = new DatabaseSync(join(daemon.storeDir, "svc.db"), { readOnly: true });
    const left = store.prepare("SELECT name, executor FROM backup_archives WHERE is_whole = 0").all();
    store.close();
    t.deepEqual(
      left.map((row) => row["executor"]),
      [null],
      "no upload is in progress, so the next scan resolves it",
    );
    refused.clear();
    await daemon.restart();
    // The daemon is shared, so its log may name archives of other tests.
    const settled = `"name":"${String(left[0]?.["name"])}","appId":"web","isComplete":true`;
    await eventually(() => assert.ok(daemon.log().includes(settled)), 60_000);
    const last = await make(1);
    t.is(last.removed.length, 3, daemon.log());
  },
);

for (const hours of [-3, 3]) {
  s3Test(`a clock that is ${hours} h off does not prevent backups to a bucket${needsS3Server}`, async (t) => {
    await using server = await startS3Server();
    await using proxy = await startFaultProxy(server.port);
    await using daemon = await startDaemon({ launcher: await shiftedClock(server.dir, hours * 3_600_000) });
    const backups = daemon.client(BackupService);
    const directory = await install(daemon);
    await writeFile(join(directory, "data/bulk"), randomBytes(20 * mib));
    await addBucket(daemon, "far", server, proxy.endpoint);
    const made = await backups.createBackup({ appId: "web", storages: ["far"] });
    t.is(made.results[0]?.error, "");
    const begun = proxy.seen.filter(({ method, url }) => method === "POST" && url.includes("?uploads"));
    t.is(begun.length, 2, "rejected, and sent again with the server's time");
    const ref = { appId: "web", storage: "far", name: made.results[0]?.name ?? "" };
    t.is((await backups.verifyBackup(ref)).entries, made.entries);
    const { backups: listed, errors } = await backups.listBackups({ appId: "web" });
    t.deepEqual([listed.map(({ storage }) => storage), errors], [["far"], []]);
    const tried = await backups.testBackupStorage({ name: "far" });
    t.deepEqual(
      tried.checks.filter(({ error }) => error !== ""),
      [],
    );
  });
}

/** Starts Node with a clock that is ahead by this much in all threads. */
async function shiftedClock(dir: string, byMs: number): Promise<string[]> {
  const file = join(dir, "clock.cjs");
  const script = `const now = Date.now; globalThis.Date = class extends Date {
    constructor(...parts) { if (parts.length === 0) super(now() + ${byMs}); else super(...parts); }
    static now() { return now() + ${byMs}; }
  };`;
  await writeFile(file, script);
  return ["sh", "-c", `node=$1; shift; exec "$node" --require=${file} "$@"`, "sh"];
}

(hasS3Server && isRoot ? test : test.skip)(
  `a user keeps no more in a bucket than max_backup_bytes_per_user${needsS3Server}${needsRoot}`,
  async (t) => {
    await using server = await startS3Server();
    await using daemon = await startDaemon({ config: "[limits]\nmax_backup_bytes_per_user = 400000\n" });
    await addBucket(daemon, "far", server);
    await using user = await daemon.as(65_534);
    await writePackage(join(daemon.dir, "package"), await freePort());
    const { directory } = await user.client(AppService).installApp({ spec: join(daemon.dir, "package") });
    await writeFile(join(directory, "data/bulk"), randomBytes(140_000));
    const own = user.client(BackupService);
    const backUp = async (whose: typeof own) =>
      (await whose.createBackup({ appId: "web", storages: ["far"] })).results[0];
    const first = await backUp(own);
    t.is((await backUp(own))?.error, "");
    t.regex(
      (await backUp(own))?.error ?? "",
      /in the storage "far".*max_backup_bytes_per_user \(400000\) is reached: remove some/,
    );
    t.is((await own.listBackups({ storage: "far" })).backups.length, 2);
    t.is((await backUp(daemon.client(BackupService)))?.error, "", "root has no limit");
    for (const { name } of (await own.listBackups({ storage: "far" })).backups.slice(0, 2))
      await own.deleteBackup({ appId: "web", storage: "far", name });
    t.is((await own.listBackups({ storage: "far" })).backups[0]?.name, first?.name);
    t.is((await backUp(own))?.error, "");
  },
);
