/** Encrypted backups through the API: created, browsed and restored with an identity, and nothing without it. */
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { hasAge, needsAge, newAgeKey, type AgeKey } from "../../support/age.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, type TestDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { startFaultProxy } from "../../support/fault-proxy.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { hasS3Server, needsS3Server, startS3Server } from "../../support/s3-server.ts";
import { main } from "../../support/svc-main.ts";

const emptyDaemon = sharedDaemon();
/** From another host. */
const otherDaemon = sharedDaemon();

const run = promisify(execFile);
const nobody = 65_534;
const ageTest = hasAge ? test : test.skip;
const ageS3Test = hasAge && hasS3Server ? test : test.skip;
const ageRootTest = hasAge && isRoot ? test : test.skip;
const mib = 1 << 20;
/** In a file, in a file name and in a setting: an encrypting storage must not contain it anywhere. */
const marker = "MARKER-f00dcafe-MARKER";

async function install(daemon: TestDaemon, client = daemon.client(AppService)): Promise<string> {
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const { directory } = await client.installApp({ spec: dir });
  return directory;
}

/** An encrypting storage in a directory. */
async function addVault(daemon: TestDaemon, recipients: string[], name = "vault"): Promise<string> {
  const dir = join(daemon.dir, name);
  await mkdir(dir, { mode: 0o700 });
  await daemon
    .client(BackupService)
    .upsertBackupStorage({ name, location: { case: "local", value: { dir } }, recipients });
  return dir;
}

async function contentOf(
  pieces: AsyncIterable<{ content?: { data: Uint8Array } | undefined }>,
): Promise<Buffer> {
  const parts = await Array.fromAsync(pieces, ({ content }) => content?.data ?? new Uint8Array());
  return Buffer.concat(parts);
}

/** Content that must not be in any daemon file or log. */
async function assertNowhere(
  t: ExecutionContext,
  daemon: TestDaemon,
  keys: readonly AgeKey[],
): Promise<void> {
  const files = await readdir(daemon.storeDir, { recursive: true, withFileTypes: true });
  for (const file of files) {
    if (!file.isFile()) continue;
    const bytes = await readFile(join(file.parentPath, file.name)).catch(() => Buffer.alloc(0));
    for (const { secret } of keys)
      t.false(bytes.includes(secret.slice(15, 60)), join(file.parentPath, file.name));
  }
  for (const { secret } of keys) t.false(daemon.log().includes(secret.slice(15, 60)), "the log");
}

ageTest(`only its recipients can open an archive of an encrypting storage${needsAge}`, async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const key = await newAgeKey(daemon.dir, "key.txt");
  const other = await newAgeKey(daemon.dir, "other.txt");
  const directory = await install(daemon);
  const data = join(directory, "data");
  await writeFile(join(data, marker), `${marker}\n`);
  await writeFile(join(data, "bulk"), randomBytes(3 * mib));
  const vault = await addVault(daemon, [key.recipient]);
  t.deepEqual((await backups.listBackupStorages({})).storages.at(-1)?.recipients, [key.recipient]);

  const made = await backups.createBackup({ appId: "web", storages: ["local", "vault"] });
  t.deepEqual(
    made.results.map(({ error }) => error),
    ["", ""],
  );
  const [plainName = "", name = ""] = made.results.map((result) => result.name);
  t.is(name, `${plainName}.age`);
  t.deepEqual(await readdir(join(daemon.storeDir, "spool")), []);
  const file = join(vault, "web", name);
  const stored = await readFile(file);
  t.is(Number(made.results[1]?.sizeBytes), stored.length);
  const plain = await readFile(join(daemon.storeDir, "backups/web", plainName));
  const opened = execFileSync("age", ["-d", "-i", key.file, file], { maxBuffer: 1 << 30 });
  t.true(opened.equals(plain), "the real age returns the plain archive");
  await mkdir(join(daemon.dir, "by-hand"));
  execFileSync("sh", [
    "-c",
    `age -d -i "${key.file}" "${file}" | zstd -dc | tar x -C "${daemon.dir}/by-hand"`,
  ]);
  t.is(await readFile(join(daemon.dir, "by-hand/data", marker), "utf8"), `${marker}\n`);
  // It contains no run of 32 bytes of the plain archive at any offset.
  for (let at = 0; at + 32 < plain.length; at += 1021) t.false(stored.includes(plain.subarray(at, at + 32)));
  for (const word of ["svcbkup1", marker]) t.false(stored.includes(word), word);

  const uploaded = await backups.uploadBackup(
    (async function* () {
      yield await Promise.resolve({ storage: "vault", content: { data: plain } });
    })(),
  );
  t.like(uploaded, { encrypted: true, appId: "web" });
  const fromElsewhere = join(vault, "web", uploaded.name);
  t.true(execFileSync("age", ["-d", "-i", key.file, fromElsewhere], { maxBuffer: 1 << 30 }).equals(plain));
  await backups.deleteBackup({ appId: "web", storage: "vault", name: uploaded.name });

  const { backups: listed } = await backups.listBackups({ appId: "web" });
  t.deepEqual(listed.map((each) => [each.storage, each.encrypted]).toSorted(), [
    ["local", false],
    ["vault", true],
  ]);
  const ref = { appId: "web", storage: "vault", name };
  const mistyped = { ...other, secret: key.secret.replace(/.$/, (last) => (last === "Q" ? "P" : "Q")) };
  for (const identity of ["", other.identity, mistyped.secret, "AGE-PLUGIN-X"]) {
    const attempts: [string, Promise<unknown>][] = [
      ["show", backups.getBackup({ ...ref, identity })],
      ["browse", backups.browseBackup({ ...ref, identity })],
      ["get", contentOf(backups.readBackupFile({ ...ref, path: `data/${marker}`, identity }))],
      ["verify", backups.verifyBackup({ ...ref, identity })],
      ["deep verify", backups.verifyBackup({ ...ref, deep: true, identity })],
      ["dry run", backups.restoreBackup({ ...ref, dryRun: true, identity })],
      ["restore", backups.restoreBackup({ ...ref, stopApp: true, identity })],
      ["restore as new", backups.restoreBackup({ ...ref, asNew: true, identity })],
    ];
    for (const [what, attempt] of attempts) {
      const error = await errorOf(attempt);
      t.like(error, { code: "InvalidArgument", reason: "invalid_request" }, what);
      t.notRegex(JSON.stringify(error), /SECRET-KEY-1[02-9A-Z]/, what);
    }
  }
  t.true((await contentOf(backups.downloadBackup(ref))).equals(stored), "unchanged for its owner");

  const { identity } = key;
  t.like((await backups.getBackup({ ...ref, identity })).archive, {
    encrypted: true,
    sizeBytes: BigInt(stored.length),
  });
  t.is((await backups.verifyBackup({ ...ref, identity })).entries, made.entries);
  t.like(await backups.verifyBackup({ ...ref, deep: true, identity }), { restored: true });
  const entries = (await backups.browseBackup({ ...ref, path: "data", identity })).entries;
  t.deepEqual(entries.map(({ path }) => path).toSorted(), [`data/${marker}`, "data/bulk"]);
  t.is(
    (await contentOf(backups.readBackupFile({ ...ref, path: `data/${marker}`, identity }))).toString(),
    `${marker}\n`,
  );
  await rm(join(data, marker));
  await backups.restoreBackup({ ...ref, paths: [`data/${marker}`], identity });
  t.is(await readFile(join(data, marker), "utf8"), `${marker}\n`);
  await rm(join(data, "bulk"));
  await backups.restoreBackup({ ...ref, stopApp: true, identity });
  t.is((await stat(join(data, "bulk"))).size, 3 * mib);
  t.is((await backups.restoreBackup({ ...ref, asNew: true, identity })).appId, "web-2");

  stored[stored.length - 2 * mib] = (stored[stored.length - 2 * mib] ?? 0) ^ 1;
  await writeFile(file, stored);
  t.like(await errorOf(backups.verifyBackup({ ...ref, identity })), { code: "DataLoss" });
  t.like(await errorOf(backups.restoreBackup({ ...ref, identity })), { code: "DataLoss" });
  t.is(await readFile(join(data, marker), "utf8"), `${marker}\n`, "the app is unchanged");
  await writeFile(file, stored.subarray(0, -70_000));
  t.like(await errorOf(backups.getBackup({ ...ref, identity })), { code: "DataLoss" });
  await backups.deleteBackup(ref);
  t.deepEqual(await readdir(vault), []);
  await assertNowhere(t, daemon, [key, other, mistyped]);
});

ageTest(`a verification job reports that an encrypted backup needs an identity${needsAge}`, async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService);
  const key = await newAgeKey(daemon.dir, "key.txt");
  await install(daemon);
  await addVault(daemon, [key.recipient]);
  const { results } = await daemon.client(BackupService).createBackup({ appId: "web", storages: ["vault"] });
  const action = { type: "backup_verify", app: "web" };
  await schedules.upsertSchedule({ id: "drill", trigger: "04:00", action });
  await schedules.runSchedule({ id: "drill" });
  const [ended] = await eventually(async () => {
    const { runs } = await schedules.listScheduleRuns({ id: "drill" });
    assert.notEqual(runs[0]?.status, "RUNNING");
    return runs;
  }, 60_000);
  t.is(ended?.status, "FAILED");
  t.true(ended?.error.startsWith(`vault: ${results[0]?.name}: identity is needed`), ended?.error);
});

ageTest(
  `archives in two storages with different recipients open only for their own recipients${needsAge}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await install(daemon);
    const keys = await Promise.all(["one", "two"].map((name) => newAgeKey(daemon.dir, `${name}.txt`)));
    const vaults = ["vault1", "vault2"];
    const dirs: string[] = [];
    for (const [at, { recipient }] of keys.entries())
      dirs.push(await addVault(daemon, [recipient], vaults[at]));
    const made = await daemon.client(BackupService).createBackup({ appId: "web", storages: vaults });
    const opens = (key: AgeKey, at: number): boolean => {
      const file = join(dirs[at] ?? "", "web", made.results[at]?.name ?? "");
      return spawnSync("age", ["-d", "-o", "/dev/null", "-i", key.file, file]).status === 0;
    };
    t.deepEqual(
      keys.map((key) => [opens(key, 0), opens(key, 1)]),
      [
        [true, false],
        [false, true],
      ],
    );
  },
);

ageTest(`REST accepts an identity in the body, never in the URL${needsAge}`, async (t) => {
  const daemon = await emptyDaemon();
  const key = await newAgeKey(daemon.dir, "key.txt");
  await writeFile(join(await install(daemon), "data/notes"), "one\n");
  await addVault(daemon, [key.recipient]);
  const made = await daemon.client(BackupService).createBackup({ appId: "web", storages: ["vault"] });
  const url = `http://127.0.0.1:${daemon.port}/v1/apps/web/backups/vault/${made.results[0]?.name}`;
  const headers = { authorization: `Bearer ${daemon.token}`, "content-type": "application/json" };
  for (const path of ["", "/entries", "/content"]) {
    const query = new URLSearchParams({
      identity: key.secret,
      ...(path === "/content" && { path: "data/notes" }),
    });
    const answer = await fetch(`${url}${path}?${query.toString()}`, { headers });
    t.is(answer.status, 400, path);
    const text = await answer.text();
    t.regex(text, /must be in the body, not in the URL/, path);
    t.false(text.includes(key.secret));
  }
  const post = async (path: string, body: object) =>
    fetch(url + path, { method: "POST", headers, body: JSON.stringify({ ...body, identity: key.identity }) });
  t.is(((await (await post("/show", {})).json()) as { package_id: string }).package_id, "web");
  const browsed = (await (await post("/browse", { path: "data" })).json()) as { entries: { path: string }[] };
  t.deepEqual(
    browsed.entries.map(({ path }) => path),
    ["data/notes"],
  );
  t.is(await (await post("/read", { path: "data/notes" })).text(), "one\n");
  const tooLong = await fetch(`${url}/show`, {
    method: "POST",
    headers,
    body: JSON.stringify({ identity: key.secret.repeat(200) }),
  });
  t.is(tooLong.status, 400);
  // A quoted value is truncated.
  const beginning = key.secret.slice(0, 24);
  t.false((await tooLong.text()).includes(beginning), "a value that is too long is not quoted");
  const noText = await fetch(`${url}/show`, {
    method: "POST",
    headers,
    body: JSON.stringify({ identity: [key.secret] }),
  });
  t.is(noText.status, 400);
  t.false((await noText.text()).includes(beginning), "a value that is not text is not quoted");
  await assertNowhere(t, daemon, [key]);
});

ageS3Test(
  `reading one file of an encrypted archive in a bucket downloads only its frames${needsAge}${needsS3Server}`,
  async (t) => {
    await using server = await startS3Server();
    await using proxy = await startFaultProxy(server.port);
    const daemon = await emptyDaemon();
    const backups = daemon.client(BackupService);
    const key = await newAgeKey(daemon.dir, "key.txt");
    const data = join(await install(daemon), "data");
    await writeFile(join(data, "notes"), "one");
    for (let n = 0; n < 5; n++) await writeFile(join(data, `bulk${n}`), randomBytes(8 * mib));
    const { bucket, accessKey, secretKey } = server;
    await backups.upsertBackupStorage({
      name: "far",
      location: { case: "s3", value: { endpoint: proxy.endpoint, bucket, accessKey, secretKey } },
      recipients: [key.recipient],
    });
    const made = await backups.createBackup({ appId: "web", storages: ["far"] });
    t.is(made.results[0]?.error, "");
    const name = made.results[0]?.name ?? "";
    const stored = await readFile(join(server.dir, bucket, "web", name));
    t.true(stored.length > 40 * mib);
    t.true(stored.subarray(0, 22).equals(Buffer.from("age-encryption.org/v1\n")));
    const ref = { appId: "web", storage: "far", name, identity: key.identity };
    const sentBefore = proxy.sentBytes;
    t.is((await contentOf(backups.readBackupFile({ ...ref, path: "data/notes" }))).toString(), "one");
    const sent = proxy.sentBytes - sentBefore;
    t.true(sent < 13 * mib, `${sent} bytes were downloaded for one file`);
    t.is((await backups.verifyBackup(ref)).entries, made.entries);
  },
);

ageRootTest(
  `another host opens an encrypted archive with its identity, and only its owner may${needsAge}${needsRoot}`,
  async (t) => {
    const first = await emptyDaemon();
    await using owner = await first.as(nobody);
    const key = await newAgeKey(first.dir, "key.txt");
    await install(first, owner.client(AppService));
    await addVault(first, [key.recipient]);
    const theirs = owner.client(BackupService);
    t.deepEqual((await theirs.listBackupStorages({})).storages.at(-1)?.recipients, []);
    const { results } = await theirs.createBackup({ appId: "web", storages: ["vault"] });
    const ref = { appId: "web", storage: "vault", name: results[0]?.name ?? "" };
    t.is((await theirs.listBackups({})).backups[0]?.name, ref.name);
    const bytes = await contentOf(theirs.downloadBackup(ref));
    await using stranger = await first.as(nobody - 1);
    for (const attempt of [
      contentOf(stranger.client(BackupService).downloadBackup(ref)),
      stranger.client(BackupService).deleteBackup(ref),
      stranger.client(BackupService).getBackup({ ...ref, identity: key.identity }),
    ]) {
      t.like(await errorOf(attempt), { code: "NotFound" });
    }
    // The name states the owner until the archive is open.
    const forged = ref.name.replace(`-u${nobody}-`, `-u${nobody - 1}-`);
    await writeFile(join(first.dir, "vault/web", forged), bytes);
    t.like(
      await errorOf(
        stranger.client(BackupService).getBackup({ ...ref, name: forged, identity: key.identity }),
      ),
      { code: "NotFound" },
    );

    const second = await otherDaemon();
    await using same = await second.as(nobody);
    const upload = (whose: Pick<TestDaemon, "client">, identity: string, storage = "local") =>
      whose.client(BackupService).uploadBackup(
        (async function* () {
          yield await Promise.resolve({ storage, identity });
          yield { storage, content: { data: bytes } };
        })(),
      );
    t.like(await errorOf(upload(same, "")), { code: "InvalidArgument" });
    await using else_ = await second.as(nobody - 1);
    t.like(await errorOf(upload(else_, key.identity)), { code: "PermissionDenied" });
    const archive = await upload(same, key.identity);
    t.like(archive, { encrypted: true, appId: "web", owner: nobody });
    t.true(
      (await readFile(join(second.storeDir, "backups/web", archive.name))).equals(bytes),
      "it is unchanged",
    );
    const here = { appId: "web", storage: "local", name: archive.name };
    t.like(await errorOf(same.client(BackupService).restoreBackup(here)), { code: "InvalidArgument" });
    t.like(await same.client(BackupService).restoreBackup({ ...here, identity: key.identity }), {
      appId: "web",
    });
    t.like(await same.client(AppService).getApp({ id: "web" }), { owner: nobody });
    await assertNowhere(t, second, [key]);
  },
);

ageTest(`self-verifying files are not encrypted, and the CLI accepts identities${needsAge}`, async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const key = await newAgeKey(daemon.dir, "key.txt");
  const data = join(await install(daemon), "data");
  await writeFile(join(data, "notes"), "one\n");
  const svc = async (...words: string[]) =>
    (await run(process.execPath, [main, ...words, "--yes", "--socket", daemon.socketPath])).stdout;
  const dir = join(daemon.dir, "vault");
  await mkdir(dir, { mode: 0o700 });
  await svc("backup", "storage", "add", "vault", "--dir", dir, "--recipient", key.recipient);
  // Another change does not disable the encryption.
  await svc("backup", "storage", "add", "vault", "--dir", dir, "--max-rate", "900000000");
  t.like((await backups.listBackupStorages({})).storages.at(-1), { recipients: [key.recipient] });
  const wrong = key.recipient.replace(/.$/, (last) => (last === "q" ? "p" : "q"));
  t.like(
    await errorOf(
      backups.upsertBackupStorage({
        name: "vault",
        location: { case: "local", value: { dir } },
        recipients: [wrong],
      }),
    ),
    { code: "InvalidArgument" },
  );

  t.like(await errorOf(backups.setBackupPolicy({ appId: "web", storages: ["vault"], verify: true })), {
    code: "InvalidArgument",
  });
  await backups.setBackupPolicy({ appId: "web", storages: ["vault", "local"], verify: true });

  await svc("backup", "create", "web", "--storage", "vault");
  await t.throwsAsync(svc("backup", "browse", "web", "latest", "data"), { message: /identity/ });
  const opening = ["--identity", key.file];
  t.regex(await svc("backup", "show", "web", "latest", ...opening), /Owner/);
  t.regex(await svc("backup", "browse", "web", "latest", "data", ...opening), /data\/notes/);
  t.is(await svc("backup", "get", "web", "latest", "data/notes", ...opening), "one\n");
  t.regex(await svc("backup", "verify", "web", "latest", "--deep", ...opening), /trial restore succeeded/);
  await rm(join(data, "notes"));
  await svc("backup", "restore", "web", "latest", ...opening);
  t.is(await readFile(join(data, "notes"), "utf8"), "one\n");
  await svc("backup", "storage", "add", "vault", "--dir", dir, "--no-recipient");
  t.like((await backups.listBackupStorages({})).storages.at(-1), { recipients: [] });
  await assertNowhere(t, daemon, [key]);
});

ageTest(`a daemon that is killed during encryption leaves no partial archive${needsAge}`, async (t) => {
  const daemon = await emptyDaemon();
  const directory = await install(daemon);
  // Large enough to observe the middle, and without repeated frames.
  await writeFile(join(directory, "data/bulk"), Buffer.alloc(192 * mib, randomBytes(5 * mib)));
  const key = await newAgeKey(daemon.dir, "key.txt");
  const vault = await addVault(daemon, [key.recipient]);
  const backups = daemon.client(BackupService);
  const request = { appId: "web", storages: ["vault"] };
  const spool = join(daemon.storeDir, "spool");
  let killed: string[] = [];
  const doing = async (): Promise<void> => {
    for await (const { event } of backups.createBackupStream(request)) {
      if (event.case !== "progress" || killed.length > 0) continue;
      const there = await readdir(spool);
      if (there.length < 2) continue;
      killed = there;
      await daemon.kill();
    }
  };
  await errorOf(doing());
  t.is(killed.length, 2, "the archive, and its recipients");
  t.deepEqual(await readdir(vault), [], "no upload was in progress");
  await daemon.restart();
  await eventually(async () => assert.deepEqual(await readdir(spool), []), 60_000);
  const apps = daemon.client(AppService);
  await eventually(async () => {
    assert.equal((await apps.getApp({ id: "web" })).operation, undefined);
  }, 60_000);
  t.deepEqual((await daemon.client(BackupService).listBackups({ appId: "web" })).backups, []);
  await rm(join(directory, "data/bulk"));
  const { results } = await daemon.client(BackupService).createBackup(request);
  const ref = { appId: "web", storage: "vault", name: results[0]?.name ?? "", identity: key.identity };
  t.true((await daemon.client(BackupService).verifyBackup(ref)).entries > 0n);
});
