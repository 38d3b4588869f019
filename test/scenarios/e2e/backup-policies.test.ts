/** Backup policies through the API, and large backups. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, open, readdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { addVersion, freePort, writePackage, writeRepository } from "../../support/packages.ts";

// Backup policies through the API: the package's recommendation, the user's policy, and the results.

const rootTest = isRoot ? test : test.skip;
const recommended = `backup: { trigger: "04:00", keep: 3, mode: stop }`;

/** Without an upgrade this has no effect. */
const emptyDaemon = sharedDaemon({ config: "[apps]\nbackup_before_upgrade = true" });

async function setUp() {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { manifest: recommended });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  return { daemon, apps, backups: daemon.client(BackupService) };
}

rootTest(`a policy is the package's until it is set, and again after a reset${needsRoot}`, async (t) => {
  const { daemon, backups } = await setUp();
  const packages = await backups.getBackupPolicy({ appId: "web" });
  t.like(packages, {
    fromPackage: true,
    trigger: "04:00",
    keep: 3,
    mode: "stop",
    verify: false,
    lastError: "",
  });
  t.truthy(packages.nextRunAt);
  const policy = {
    appId: "web",
    trigger: "0 3 * * 1-5",
    storages: ["local"],
    keepDaily: 7,
    mode: "live",
    verify: true,
  };
  const set = await backups.setBackupPolicy(policy);
  t.like(set, { ...policy, fromPackage: false });
  t.is(set.keep, undefined);
  const { $typeName: _, ...written } = set;
  t.deepEqual(await backups.setBackupPolicy(written), set, "it can be written back as it was read");
  for (const [wrong, field] of [
    [{ trigger: "at noon" }, "trigger"],
    [{ trigger: "0 3 31 6 *" }, "there is no 31 June"],
    [{ storages: ["local", "moon"] }, "storages[1]"],
  ] satisfies [object, string][]) {
    const refused = await errorOf(backups.setBackupPolicy({ appId: "web", ...wrong }));
    t.is(refused.reason, "invalid_request");
    t.regex(refused.message, new RegExp(field.replace(/[[\]]/g, "\\$&")));
  }
  await using user = await daemon.as(65_534);
  const theirs = user.client(BackupService);
  t.like(await errorOf(theirs.getBackupPolicy({ appId: "web" })), { code: "NotFound" });
  t.like(await errorOf(theirs.setBackupPolicy({ appId: "web", trigger: "hourly" })), { code: "NotFound" });
  t.deepEqual(await backups.setBackupPolicy({ appId: "web", fromPackage: true }), packages);
});

test("a due policy creates, verifies and lists a backup, and reports a failure", async (t) => {
  const { daemon, apps, backups } = await setUp();
  t.like((await apps.getApp({ id: "web" })).backups, {
    storages: [],
    overdue: false,
    lastBackupAt: undefined,
  });
  const dir = join(daemon.dir, "other");
  await writePackage(dir, await freePort(), { id: "other" });
  await apps.installApp({ spec: dir });
  const nowhere = { case: "local", value: { dir: daemon.configFile } } as const;
  await backups.upsertBackupStorage({ name: "broken", location: nowhere });
  await backups.setBackupPolicy({ appId: "web", trigger: "* * * * *", keep: 1, verify: true });
  await backups.setBackupPolicy({ appId: "other", trigger: "* * * * *", storages: ["broken"] });
  const minutes = 60_000;
  const proven = await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.ok(app.backups?.lastProvenAt);
    return app.backups;
  }, 4 * minutes);
  t.deepEqual(proven.storages, ["local"]);
  t.truthy(proven.lastBackupAt);
  const { backups: listed } = await backups.listBackups({});
  t.true(listed.some(({ restoredAt }) => restoredAt !== undefined));
  t.is((await daemon.client(DaemonService).getStatus({})).apps?.backupsOverdue, 0);
  await eventually(async () => {
    assert.match((await backups.getBackupPolicy({ appId: "other" })).lastError, /^broken: /);
  }, 4 * minutes);
  for (const appId of ["web", "other"]) await backups.setBackupPolicy({ appId, trigger: "" });
  await eventually(() => assert.match(daemon.log(), /"msg":"a policy backup failed"/));
});

test("a backup on request is tested if the policy tests each new backup", async (t) => {
  const { backups } = await setUp();
  const isTested = async (): Promise<boolean> => {
    const { results } = await backups.createBackup({ appId: "web" });
    const { backups: listed } = await backups.listBackups({ appId: "web" });
    return listed.find(({ name }) => name === results[0]?.name)?.restoredAt !== undefined;
  };
  await backups.setBackupPolicy({ appId: "web", verify: false });
  t.false(await isTested());
  await backups.setBackupPolicy({ appId: "web", verify: true });
  t.true(await isTested());
});

test("a backup that was missed while no daemon ran is created at the next start, if the policy allows it", async (t) => {
  const { daemon, apps, backups } = await setUp();
  const dir = join(daemon.dir, "other");
  await writePackage(dir, await freePort(), { id: "other" });
  await apps.installApp({ spec: dir });
  // Half a day from now, so that it does not fire during the test.
  const hour = (new Date().getHours() + 12) % 24;
  const policy = { trigger: `${String(hour).padStart(2, "0")}:30`, mode: "live" };
  t.like(await backups.setBackupPolicy({ appId: "other", ...policy }), { catchUp: "none" });
  t.like(await backups.setBackupPolicy({ appId: "web", ...policy, catchUp: "latest" }), {
    catchUp: "latest",
  });
  await daemon.stop();
  const store = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  store
    .prepare("UPDATE backup_policies SET set_at = set_at - 2 * 24 * 3600 * 1000, last_error = 'of before'")
    .run();
  store.close();
  await daemon.restart();
  const isOverdue = async (id: string) => (await apps.getApp({ id })).backups?.overdue;
  t.deepEqual([await isOverdue("web"), await isOverdue("other")], [true, true]);
  await eventually(async () => {
    assert.ok((await apps.getApp({ id: "web" })).backups?.lastBackupAt);
  }, 4 * 60_000);
  t.deepEqual([await isOverdue("web"), await isOverdue("other")], [false, true]);
  const errorNow = async (appId: string) => (await backups.getBackupPolicy({ appId })).lastError;
  await eventually(async () => assert.equal(await errorNow("web"), ""));
  t.is(await errorNow("other"), "of before");
  const { backups: made } = await backups.listBackups({});
  t.deepEqual(
    made.map(({ appId }) => appId),
    ["web"],
  );
});

test("an upgrade with a backup first creates the backup, and does nothing if it fails", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const [port, dir] = [await freePort(), join(daemon.dir, "repository")];
  const spec = await writeRepository(dir, port, [{}]);
  await apps.installApp({ spec });
  const count = async () => (await backups.listBackups({})).backups.length;
  await addVersion(dir, port, { version: "1.1.0" });
  const told: string[] = [];
  for await (const { event } of apps.upgradeAppStream({ id: "web" })) {
    if (event.case === "progress") told.push(event.value.message);
    if (event.case === "result") t.like(event.value, { from: "v1.0.0", to: "v1.1.0" });
  }
  t.true(told.includes("Backing up Test web server v1.0.0 first"), told.join("\n"));
  t.is(await count(), 1);
  await addVersion(dir, port, { version: "1.2.0" });
  t.like(await apps.upgradeApp({ id: "web", backup: false }), { to: "v1.2.0" });
  t.is(await count(), 1);
  const name = (await backups.listBackups({})).backups[0]?.name ?? "";
  t.is((await backups.getBackup({ appId: "web", storage: "local", name })).version, "v1.0.0");

  const nowhere = { case: "local", value: { dir: daemon.configFile } } as const;
  await backups.upsertBackupStorage({ name: "broken", location: nowhere });
  await backups.setBackupPolicy({ appId: "web", storages: ["broken"] });
  await addVersion(dir, port, { version: "1.3.0" });
  t.regex(
    (await errorOf(apps.upgradeApp({ id: "web", backup: true }))).message,
    /the backup failed on all storages: broken/,
  );
  t.is((await apps.getApp({ id: "web" })).version, "v1.2.0");
});

test("the job action backup_verify verifies the newest archives, and fails if one is damaged or none exists", async (t) => {
  const { daemon, backups } = await setUp();
  const schedules = daemon.client(ScheduleService);
  await schedules.upsertSchedule({
    id: "drill",
    trigger: "04:00",
    action: { type: "backup_verify", app: "web" },
  });
  const run = async () => {
    const { run: started } = await schedules.runSchedule({ id: "drill" });
    return eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id: "drill" });
      const ended = runs.find(({ id }) => id === started?.id);
      assert.notEqual(ended?.status, "RUNNING");
      return ended;
    }, 60_000);
  };
  t.like(await run(), { status: "FAILED", error: "there is no backup to verify" });
  const { results } = await backups.createBackup({ appId: "web" });
  const proven = await run();
  t.is(proven?.status, "SUCCEEDED");
  t.regex(proven?.output ?? "", /can be restored/);
  t.truthy((await backups.listBackups({})).backups[0]?.restoredAt);
  const dir = join(daemon.storeDir, "backups/web");
  t.deepEqual(await readdir(dir), [results[0]?.name ?? ""]);
  await truncate(join(dir, results[0]?.name ?? ""), 1000);
  const failed = await run();
  t.is(failed?.status, "FAILED");
  t.regex(failed?.error ?? "", /^local: .*: the archive/);
});

// Many small files and a large sparse one are unchanged after a restore, as compared by rsync. With `SVC_LONG=1`
// 100,000 files and 8 GiB, otherwise a hundredth of that.

const run = promisify(execFile);
const isLong = process.env["SVC_LONG"] === "1";
const files = isLong ? 100_000 : 1_000;
const sparseBytes = (isLong ? 8 * 1024 : 80) * 1024 ** 2;
const filesOfDirectory = 500;
/** Data islands in the hole. The ones at the end are lost if sizes or offsets are truncated to 32 bits. */
const islands = [0.2, 0.7];

/** The changes that rsync would make to turn the second into the first. */
async function differences(from: string, to: string): Promise<string> {
  const { stdout } = await run("rsync", ["-niaHAX", "--checksum", "--delete", `${from}/`, to]);
  return stdout;
}

test(`${files.toLocaleString("en")} files and a sparse one are unchanged after a restore`, async (t) => {
  t.timeout(isLong ? 1_800_000 : 240_000);
  await using daemon = await startDaemon();
  const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
  const spec = join(daemon.dir, "package");
  await writePackage(spec, await freePort());
  const { directory } = await apps.installApp({ spec });
  const [data, before] = [join(directory, "data"), join(daemon.dir, "before")];
  for (let number = 0; number < files; number += 1) {
    const into = join(data, String(Math.floor(number / filesOfDirectory)));
    if (number % filesOfDirectory === 0) await mkdir(into);
    await writeFile(join(into, String(number)), randomBytes(number % 2_000));
  }
  const sparse = await open(join(data, "sparse"), "w");
  await sparse.truncate(sparseBytes);
  for (const at of islands) await sparse.write(randomBytes(100_000), 0, null, Math.floor(sparseBytes * at));
  await sparse.close();
  const { blocks } = await stat(join(data, "sparse"));
  await run("cp", ["--archive", "--sparse=always", data, before]);

  const { results, entries, warnings } = await backups.createBackup({ appId: "web" });
  t.deepEqual(warnings, []);
  t.true(entries > BigInt(files));
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  t.is((await backups.verifyBackup(ref)).entries, entries);
  await rm(data, { recursive: true });
  await backups.restoreBackup(ref);

  t.is(await differences(before, data), "");
  const restored = await stat(join(data, "sparse"));
  t.true(restored.blocks <= 2 * blocks + 64, `${restored.blocks} blocks, and ${blocks} before`);
});
