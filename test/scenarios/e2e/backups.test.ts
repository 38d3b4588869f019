/** Backups through the API: created, listed, verified, browsed, restored, rotated, removed. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, cp, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Client } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, type TestDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";
import { freePort, writePackage } from "../../support/packages.ts";

keepInMemory();

const emptyDaemon = sharedDaemon();
/** From another host. */
const otherDaemon = sharedDaemon();

interface BackupJob {
  id: string;
  trigger: string;
  keep: number;
  action: { type: string; app: string };
}

const nobody = 65_534;
const rootTest = isRoot ? test : test.skip;

async function install(daemon: TestDaemon, client = daemon.client(AppService), manifest = "") {
  const dir = join(daemon.dir, "package");
  const port = await freePort();
  await writePackage(dir, port, { manifest });
  const { id, directory } = await client.installApp({ spec: dir });
  return { id, directory, port };
}

/** The app's own files with all attributes. */
/** An app with notes, and a backup of it. */
async function backedUp(daemon: TestDaemon) {
  const { directory } = await install(daemon);
  await writeFile(join(directory, "data/notes"), "mine");
  const { results } = await daemon.client(BackupService).createBackup({ appId: "web" });
  return { directory, ref: { appId: "web", storage: "local", name: results[0]?.name ?? "" } };
}

function copyOf(directory: string, to: string): void {
  execFileSync("cp", ["-a", directory, to]);
}

/** Excludes the times of the daemon's own directories. */
function differences(before: string, after: string): string {
  const options = ["-niaHAX", "--checksum", "--delete", "--exclude=/logs"];
  const found = execFileSync("rsync", [...options, `${before}/`, `${after}/`], { encoding: "utf8" });
  return found.replaceAll(/^\.d\.\.t\.+ (\.|volumes)\/\n/gm, "");
}

async function contentOf(
  pieces: AsyncIterable<{ content?: { data: Uint8Array } | undefined }>,
): Promise<Buffer> {
  const parts = await Array.fromAsync(pieces, ({ content }) => content?.data ?? new Uint8Array());
  return Buffer.concat(parts);
}

for (const owner of ["root", "a user"]) {
  rootTest(`an app of ${owner} is backed up, verified, browsed and restored${needsRoot}`, async (t) => {
    const daemon = await emptyDaemon();
    await using user = await daemon.as(nobody);
    const connection = owner === "root" ? daemon : user;
    const apps = connection.client(AppService);
    const backups = connection.client(BackupService);
    const { directory } = await install(daemon, apps);
    const data = join(directory, "data");
    const uid = owner === "root" ? 0 : nobody;
    const act = (script: string) =>
      execFileSync("setpriv", [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "sh", "-c", script], {
        cwd: data,
      });
    act(
      "echo one > notes; mkdir sub; ln notes sub/link; ln -s ../notes sub/soft; truncate -s 1M sparse; echo m > ../volumes/media/m",
    );
    await apps.startApp({ id: "web" });
    const made = await backups.createBackup({ appId: "web" });
    const [result] = made.results;
    t.like(result, { storage: "local", error: "", removed: [] });
    t.deepEqual(made.warnings, []);
    const ref = { appId: "web", storage: "local", name: result?.name ?? "" };
    t.regex(ref.name, /^\d{8}T\d{9}Z-web-u\d+-[0-9a-f]{8}-[0-9a-f]{6}\.tar\.zst$/);
    const listed = await backups.listBackups({});
    t.deepEqual(
      listed.backups.map(({ name, sizeBytes }) => ({ name, sizeBytes })),
      [{ name: ref.name, sizeBytes: result?.sizeBytes }],
    );
    t.is(listed.backups[0]?.verifiedAt, undefined);
    t.like((await apps.getApp({ id: "web" })).backups, { storages: ["local"], lastProvenAt: undefined });

    const verified = await backups.verifyBackup(ref);
    t.is(verified.entries, made.entries);
    t.like(await backups.verifyBackup({ ...ref, deep: true }), { restored: true });
    t.deepEqual(await readdir(join(daemon.storeDir, "trials")), []);
    t.truthy((await backups.listBackups({})).backups[0]?.restoredAt);
    t.truthy((await apps.getApp({ id: "web" })).backups?.lastProvenAt);

    t.deepEqual(
      (await backups.browseBackup(ref)).entries.map(({ path }) => path),
      ["repo", "data", "volumes/media"],
    );
    const inData = await backups.browseBackup({ ...ref, path: "data" });
    const { entries: trees } = await backups.browseBackup({ ...ref, path: "volumes" });
    t.deepEqual(
      trees.map(({ path }) => path),
      ["volumes/media"],
      "the path to a volume has no entry of its own",
    );
    for (const path of ["engine", "data/nope", "vol", "repo/server.mjs"])
      t.like(await errorOf(backups.browseBackup({ ...ref, path })), {
        code: "NotFound",
        message: `the archive has no directory "${path}"`,
      });
    t.deepEqual(
      inData.entries.map(({ path }) => path).toSorted(),
      ["data/notes", "data/sparse", "data/sub"].toSorted(),
    );
    t.is((await contentOf(backups.readBackupFile({ ...ref, path: "data/sub/link" }))).toString(), "one\n");
    t.deepEqual(
      await contentOf(backups.readBackupFile({ ...ref, path: "data/sparse" })),
      Buffer.alloc(1 << 20),
    );
    const stored = await readFile(join(daemon.storeDir, "backups/web", ref.name));
    t.true(stored.equals(await contentOf(backups.downloadBackup(ref))));

    copyOf(directory, join(daemon.dir, "before"));
    act("rm -r sub notes; echo other > new; echo x >> ../volumes/media/m; echo broken > ../repo/server.mjs");
    t.like(await errorOf(backups.restoreBackup(ref)), { code: "FailedPrecondition", reason: "app_running" });
    t.like(await errorOf(backups.restoreBackup({ ...ref, paths: ["data/nope"] })), {
      code: "NotFound",
      reason: "not_found",
    });
    const restored = await backups.restoreBackup({ ...ref, stopApp: true });
    t.like(restored, { appId: "web", restarted: true });
    t.is(differences(join(daemon.dir, "before"), directory), "");
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING");

    act("rm notes; echo mine > sub/mine");
    await apps.stopApp({ id: "web" });
    await backups.restoreBackup({ ...ref, paths: ["data/notes"] });
    t.is(await readFile(join(data, "notes"), "utf8"), "one\n");
    t.is(await readFile(join(data, "sub/mine"), "utf8"), "mine\n", "the rest is unchanged");

    const copy = await backups.restoreBackup({ ...ref, asNew: true, newName: "second" });
    const ports = async (id: string) => (await apps.getApp({ id })).ports.map((one) => one.port);
    t.notDeepEqual(await ports(copy.appId), await ports(ref.appId), "both can run, as with a clone");
    t.is(copy.appId, "second");
    t.like(await apps.getApp({ id: "second" }), { name: "second", state: "STOPPED", owner: uid });

    await apps.removeApp({ id: "web" });
    t.like(await backups.restoreBackup(ref), { appId: "web", restarted: false });
    t.is(differences(join(daemon.dir, "before"), directory), "");
    await apps.startApp({ id: "web" });

    await backups.deleteBackup(ref);
    t.deepEqual((await backups.listBackups({})).backups, []);
    await apps.stopApp({ id: "web" });
  });
}

test("files that change while they are read, and special files, are reported with the backup and its restore", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const dir = join(daemon.dir, "package");
  const grow = "while :; do echo more >> data/log; sleep 0.01; done";
  await mkdir(dir);
  await writeFile(
    join(dir, "svc.yaml"),
    `id: grows\nname: Grows\nversion: "1.0.0"\nprocess: { exec: [sh, -c, "cd ..; ${grow}"] }\n`,
  );
  const { directory } = await apps.installApp({ spec: dir });
  await writeFile(join(directory, "data/log"), randomBytes(64 << 20));
  await writeFile(join(directory, "data/still"), "still\n");
  await using stack = new AsyncDisposableStack();
  const listener = createServer().listen(join(directory, "data/socket"));
  stack.defer(() => void listener.close());
  await apps.startApp({ id: "grows" });
  const { warnings, results } = await backups.createBackup({ appId: "grows", mode: "live" });
  const ref = { appId: "grows", storage: "local", name: results[0]?.name ?? "" };
  t.true(
    warnings.some((text) => /data\/log: file changed as it was read/.test(text)),
    warnings.join("\n"),
  );
  t.true(
    warnings.some((text) => /data\/socket: socket ignored/.test(text)),
    warnings.join("\n"),
  );
  t.false(warnings.some((text) => text.includes("still")));
  t.deepEqual((await backups.getBackup(ref)).warnings, warnings);
  t.like(await backups.verifyBackup({ ...ref, deep: true }), { restored: true });
  t.deepEqual((await backups.restoreBackup({ ...ref, stopApp: true, dryRun: true })).warnings, warnings);
  t.like(await backups.restoreBackup({ ...ref, stopApp: true }), { warnings, restarted: true });
  t.is(await readFile(join(directory, "data/still"), "utf8"), "still\n");
  await apps.stopApp({ id: "grows" });
});

test("a range of an archive is downloaded over REST", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon);
  const { results } = await daemon.client(BackupService).createBackup({ appId: "web" });
  const name = results[0]?.name ?? "";
  const whole = await readFile(join(daemon.storeDir, "backups/web", name));
  const url = `http://127.0.0.1:${daemon.port}/v1/apps/web/backups/local/${name}/archive`;
  const { length } = whole;
  for (const [range, status, from, to] of [
    ["", 200, 0, length],
    ["bytes=0-0", 206, 0, 1],
    ["bytes=10-1009", 206, 10, 1010],
    [`bytes=${length - 5}-`, 206, length - 5, length],
    ["bytes=-7", 206, length - 7, length],
    [`bytes=5-${length * 2}`, 206, 5, length],
    ["bytes=9-5", 200, 0, length],
    [`bytes=${length}-`, 200, 0, length],
    ["bytes=0-1,5-6", 200, 0, length],
    ["lines=1-2", 200, 0, length],
  ] as const) {
    const headers = { authorization: `Bearer ${daemon.token}`, ...(range !== "" && { range }) };
    const answer = await fetch(url, { headers });
    t.is(answer.status, status, range);
    t.is(
      answer.headers.get("content-range"),
      status === 206 ? `bytes ${from}-${to - 1}/${length}` : null,
      range,
    );
    t.is(answer.headers.get("content-length"), String(to - from), range);
    t.true(whole.subarray(from, to).equals(Buffer.from(await answer.arrayBuffer())), range);
  }
});

test("rotation keeps the requested number of archives and the verified one", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  await install(daemon);
  await backups.upsertBackupStorage({
    name: "disk",
    location: { case: "local", value: { dir: join(daemon.dir, "disk") } },
  });
  const names: string[] = [];
  const make = async (keep?: number) => {
    const { results } = await backups.createBackup({
      appId: "web",
      storages: ["disk", "local"],
      ...(keep && { keep }),
    });
    t.deepEqual(
      results.map(({ storage, error }) => [storage, error]),
      [
        ["disk", ""],
        ["local", ""],
      ],
    );
    t.is(new Set(results.map(({ name }) => name)).size, 1);
    names.push(results[0]?.name ?? "");
    return results;
  };
  await make();
  await make();
  await make();
  await backups.verifyBackup({ appId: "web", storage: "disk", name: names[0] ?? "" });
  const [disk, local] = await make(2);
  t.deepEqual(disk?.removed, [names[1] ?? ""]);
  t.deepEqual(local?.removed, [names[1] ?? "", names[0] ?? ""]);
  const left = (storage: string) =>
    backups.listBackups({ storage }).then((list) => list.backups.map(({ name }) => name));
  t.deepEqual(await left("local"), [names[3], names[2]]);
  t.deepEqual(await left("disk"), [names[3], names[2], names[0]]);
});

for (const [how, write] of [
  ["a job that was written", (schedules, job) => schedules.upsertSchedule(job)],
  [
    "a job that the platform pushed",
    (schedules, job) => schedules.replaceManagedSchedules({ managedBy: "platform", schedules: [job] }),
  ],
] as [string, (schedules: Client<typeof ScheduleService>, job: BackupJob) => Promise<unknown>][]) {
  test(`${how} with keep 1 leaves one archive after three runs`, async (t) => {
    const daemon = await emptyDaemon();
    const schedules = daemon.client(ScheduleService);
    await install(daemon);
    const job = { id: "nightly", trigger: "0 0 1 1 *", keep: 1, action: { type: "backup", app: "web" } };
    await write(schedules, job);
    for (let at = 0; at < 3; at++) {
      const { run } = await schedules.runSchedule({ id: "nightly" });
      await eventually(async () => {
        const { runs } = await schedules.listScheduleRuns({ id: "nightly" });
        assert.equal(runs.find(({ id }) => id === run?.id)?.status, "SUCCEEDED");
      }, 30_000);
    }
    const { backups } = await daemon.client(BackupService).listBackups({ appId: "web" });
    t.is(backups.length, 1);
    const differs = { ...job, id: "differs", action: { ...job.action, keep: 2 } };
    const error = await errorOf(schedules.upsertSchedule(differs));
    t.is(error.code, "InvalidArgument");
    t.regex(error.message, /action\.keep/);
  });
}

test("rotation does not remove another host's archives of an app with the same ID in the same storage", async (t) => {
  const first = await emptyDaemon();
  const second = await otherDaemon();
  const dir = join(first.dir, "shared");
  await mkdir(dir, { mode: 0o700 });
  const make = async (daemon: TestDaemon, keep?: number) => {
    const request = { appId: "web", storages: ["shared"], ...(keep && { keep }) };
    const [result] = (await daemon.client(BackupService).createBackup(request)).results;
    t.is(result?.error, "");
    return { name: result?.name ?? "", removed: result?.removed ?? [] };
  };
  for (const daemon of [first, second]) {
    await install(daemon);
    const location = { case: "local", value: { dir } } as const;
    await daemon.client(BackupService).upsertBackupStorage({ name: "shared", location });
  }
  const theirs = [(await make(first)).name, (await make(first)).name];
  const own = await make(second);
  t.deepEqual((await make(second, 1)).removed, [own.name]);
  const { backups } = await second.client(BackupService).listBackups({ appId: "web", storage: "shared" });
  const nodes = new Map(backups.map((each) => [each.name, each]));
  t.deepEqual(
    [...nodes.values()].map((each) => each.fromThisNode),
    [true, false, false],
  );
  t.is(nodes.get(theirs[0] ?? "")?.node, /-([0-9a-f]{8})-[0-9a-f]{6}\.tar/.exec(theirs[0] ?? "")?.[1]);

  // The next daemon also recognizes an archive of an interrupted upload from elsewhere.
  await second.stop();
  const store = new DatabaseSync(join(second.storeDir, "svc.db"));
  const row = "INSERT INTO backup_archives (storage, name, app_id, is_whole) VALUES ('shared', ?, 'web', 1)";
  for (const name of theirs) store.prepare(row).run(name);
  store.close();
  await second.restart();
  t.is((await make(second, 1)).removed.length, 1);
  const left = await readdir(join(dir, "web"));
  t.deepEqual(left.filter((name) => theirs.includes(name)).toSorted(), theirs.toSorted());
  t.is(left.length, 3);
});

test("the removal of a storage lists everything that still references it", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const schedules = daemon.client(ScheduleService);
  await install(daemon);
  await install(daemon);
  const location = { case: "local", value: { dir: join(daemon.dir, "disk") } } as const;
  for (const name of ["disk", "other"]) await backups.upsertBackupStorage({ name, location });
  await backups.setBackupPolicy({ appId: "web", trigger: "03:00", storages: ["local", "disk"] });
  await backups.setBackupPolicy({ appId: "web-2", trigger: "03:00", storages: ["local"] });
  for (const [id, storages] of [
    ["nightly", ["disk"]],
    ["weekly", ["other"]],
  ] as const) {
    const action = { type: "backup", app: "web-2", storages: [...storages] };
    await schedules.upsertSchedule({ id, trigger: "04:00", action });
  }
  const owner = process.getuid?.() ?? 0;
  const { usedBy } = await backups.removeBackupStorage({ name: "disk" });
  t.like(usedBy, [
    { kind: "policy", id: "web", owner },
    { kind: "job", id: "nightly", owner },
  ]);
  t.is(usedBy.length, 2);
  await schedules.removeSchedule({ id: "weekly" });
  t.deepEqual((await backups.removeBackupStorage({ name: "other" })).usedBy, []);
});

test("files that existed before a storage was added are not svc's to remove, and later archives are", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  await install(daemon);
  const add = () =>
    backups.upsertBackupStorage({
      name: "disk",
      location: { case: "local", value: { dir: join(daemon.dir, "disk") } },
    });
  const make = async (keep?: number) => {
    const request = { appId: "web", storages: ["disk"], ...(keep && { keep }) };
    const [result] = (await backups.createBackup(request)).results;
    return { name: result?.name ?? "", removed: result?.removed };
  };
  await add();
  const old = await make();
  await backups.removeBackupStorage({ name: "disk" });
  await add();
  const since = await make();
  t.deepEqual((await make(1)).removed, [since.name]);
  const { backups: left } = await backups.listBackups({ storage: "disk" });
  t.is(left.length, 2);
  t.true(left.some(({ name }) => name === old.name));
});

test("a storage that fails does not affect the others", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  await install(daemon);
  const dir = join(daemon.dir, "file");
  await writeFile(dir, "");
  await backups.upsertBackupStorage({ name: "broken", location: { case: "local", value: { dir } } });
  t.not((await backups.createBackup({ appId: "web", storages: ["broken"] })).results[0]?.error, "");
  t.is((await daemon.client(AppService).getApp({ id: "web" })).backups, undefined, "it was not valid");
  const { results } = await backups.createBackup({ appId: "web", storages: ["broken", "local"] });
  t.is(results[0]?.name, "");
  t.not(results[0]?.error, "");
  t.like(results[1], { storage: "local", error: "" });
  t.deepEqual(await readdir(join(daemon.storeDir, "spool")), []);
});

test("a damaged archive is rejected, and the app is unchanged", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const { directory, ref } = await backedUp(daemon);
  const file = join(daemon.storeDir, "backups/web", ref.name);
  const whole = await readFile(file);
  copyOf(directory, join(daemon.dir, "before"));
  const damages: [string, Buffer][] = [
    ["cut short", whole.subarray(0, -1)],
    ["without its index", whole.subarray(0, whole.length >> 1)],
    ["empty", Buffer.alloc(0)],
    ...Array.from({ length: 40 }, (_, n): [string, Buffer] => {
      const at = Math.floor((whole.length * n) / 40);
      const broken = Buffer.from(whole);
      broken[at] = (broken[at] ?? 0) ^ 0x04;
      return [`another byte ${at} of ${whole.length}`, broken];
    }),
  ];
  for (const [what, bytes] of damages) {
    await writeFile(file, bytes);
    const refusal = await errorOf(backups.verifyBackup(ref));
    t.like(refusal, { reason: "archive_damaged" }, what);
    if (what === "without its index") t.regex(refusal.message, /it is not a complete archive$/);
    t.like(await errorOf(backups.restoreBackup(ref)), { reason: "archive_damaged" }, what);
  }
  t.is(differences(join(daemon.dir, "before"), directory), "");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
  t.is((await daemon.client(AppService).getApp({ id: "web" })).state, "STOPPED");
  await writeFile(file, whole);
  await backups.verifyBackup(ref);
});

test("damage that is found late during unpacking leaves the app unchanged", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const { directory } = await install(daemon);
  const notes = ["repo", "data", "volumes/media"].map((tree) => join(directory, tree, "notes"));
  for (const path of notes) await writeFile(path, "archived");
  for (let n = 0; n < 4; n++)
    await writeFile(join(directory, `volumes/media/bulk-${n}`), randomBytes(12 << 20));
  const { results } = await backups.createBackup({ appId: "web" });
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  const file = join(daemon.storeDir, "backups/web", ref.name);
  const bytes = await readFile(file);
  const at = Math.floor(bytes.length * 0.95);
  bytes[at] = (bytes[at] ?? 0) ^ 0x04;
  await writeFile(file, bytes);
  for (const path of notes) await writeFile(path, "newer");
  await apps.startApp({ id: "web" });
  const { startedAt } = await apps.getApp({ id: "web" });
  copyOf(directory, join(daemon.dir, "before"));
  let readBytes = 0n;
  const restoring = async (): Promise<void> => {
    for await (const { event } of backups.restoreBackupStream({ ...ref, stopApp: true })) {
      if (event.case === "progress") readBytes = event.value.doneBytes ?? readBytes;
    }
  };
  t.like(await errorOf(restoring()), { reason: "archive_damaged" });
  t.true(readBytes > 0n, "in the middle of the archive");
  t.is(differences(join(daemon.dir, "before"), directory), "");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
  const after = await apps.getApp({ id: "web" });
  t.like(after, { state: "RUNNING" });
  t.deepEqual(after.startedAt, startedAt, "the app was never stopped");
  await apps.stopApp({ id: "web" });
});

test("a failed step after a restore leaves the app unchanged and in its previous state", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const step = "cd $SVC_DATA_DIR; test ! -e broken";
  const { directory } = await install(daemon, apps, `backup: { restore: { exec: [sh, -c, "${step}"] } }`);
  const data = (name: string) => join(directory, "data", name);
  await writeFile(data("broken"), "");
  const { results } = await backups.createBackup({ appId: "web" });
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  await rm(data("broken"));
  await writeFile(data("notes"), "newer");
  await apps.startApp({ id: "web" });
  copyOf(directory, join(daemon.dir, "before"));
  t.like(await errorOf(backups.restoreBackup({ ...ref, stopApp: true })), { reason: "build_failed" });
  t.is(differences(join(daemon.dir, "before"), directory), "");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
  await apps.stopApp({ id: "web" });
});

test("a restore of some paths does not verify the other ones", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const { ref } = await backedUp(daemon);
  const restoredAt = async () => (await backups.listBackups({})).backups[0]?.restoredAt;
  await backups.restoreBackup({ ...ref, paths: ["data/notes"] });
  t.is(await restoredAt(), undefined);
  await backups.restoreBackup(ref);
  t.truthy(await restoredAt());
});

test("an archive of another app of the same owner is not accepted for this app", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon);
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "web" });
  const name = results[0]?.name ?? "";
  const stored = join(daemon.storeDir, "backups");
  const ref = { appId: "other", storage: "local", name: name.replace("-web-", "-other-") };
  await mkdir(join(stored, "other"), { mode: 0o700 });
  await copyFile(join(stored, "web", name), join(stored, "other", ref.name));
  for (const call of [() => backups.verifyBackup(ref), () => backups.restoreBackup(ref)]) {
    const refused = await errorOf(call());
    t.is(refused.reason, "archive_damaged");
    t.regex(
      refused.message,
      /the archive belongs to app "web" of uid \d+, created \S+ by node [0-9a-f]{8}, which differs from its name/,
    );
  }
});

rootTest(`an archive belongs to its owner, whatever its name states${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using user = await daemon.as(nobody);
  await install(daemon);
  const { results } = await daemon.client(BackupService).createBackup({ appId: "web" });
  const name = results[0]?.name ?? "";
  const theirs = user.client(BackupService);
  const notFound = { code: "NotFound" };
  const every = (ref: { appId: string; storage: string; name: string }) => [
    () => theirs.getBackup(ref),
    () => theirs.verifyBackup(ref),
    () => theirs.restoreBackup(ref),
    () => theirs.deleteBackup(ref),
    () => theirs.browseBackup(ref),
    () => contentOf(theirs.readBackupFile({ ...ref, path: "repo/svc.yaml" })),
    () => contentOf(theirs.downloadBackup(ref)),
  ];
  const isRefused = async (t_: ExecutionContext, named: string) => {
    for (const call of every({ appId: "web", storage: "local", name: named }))
      t_.like(await errorOf(call()), notFound);
  };
  await isRefused(t, name);
  t.deepEqual((await theirs.listBackups({})).backups, []);
  const renamed = name.replace("-u0-", `-u${nobody}-`);
  const dir = join(daemon.storeDir, "backups/web");
  await rename(join(dir, name), join(dir, renamed));
  await isRefused(t, renamed);
  t.true((await stat(join(dir, renamed))).isFile());
  t.like(await errorOf(theirs.createBackup({ appId: "web" })), notFound);
  const [local] = (await theirs.listBackupStorages({})).storages;
  t.like(local?.location, { case: "local", value: { dir: "" } });
});

rootTest(
  `an archive from elsewhere is accepted only if it is complete, and only from its owner${needsRoot}`,
  async (t) => {
    const first = await emptyDaemon();
    await install(first);
    const { results } = await first.client(BackupService).createBackup({ appId: "web" });
    const file = join(first.storeDir, "backups/web", results[0]?.name ?? "");
    const bytes = await readFile(file);
    const second = await otherDaemon();
    await using user = await second.as(nobody);
    const upload = (whose: Pick<TestDaemon, "client">, content: Buffer) =>
      whose.client(BackupService).uploadBackup(pieces(content));
    async function* pieces(content: Buffer) {
      yield { storage: "local" };
      for (let at = 0; at < content.length; at += 100_000) {
        yield { storage: "local", content: { data: content.subarray(at, at + 100_000) } };
      }
    }
    const broken = Buffer.from(bytes);
    broken[100] = (broken[100] ?? 0) ^ 1;
    for (const [what, content] of [
      ["another byte", broken],
      ["cut short", bytes.subarray(0, -1)],
      ["nothing", Buffer.alloc(0)],
    ] as const) {
      t.like(await errorOf(upload(second, content)), { reason: "invalid_request" }, what);
    }
    t.like(await errorOf(upload(user, bytes)), { reason: "root_required" });
    t.deepEqual((await second.client(BackupService).listBackups({})).backups, []);
    t.deepEqual(await readdir(join(second.storeDir, "spool")), []);
    const taken = await upload(second, bytes);
    t.like(taken, { appId: "web", owner: 0, storage: "local", sizeBytes: BigInt(bytes.length) });
    const backups = second.client(BackupService);
    t.true(bytes.equals(await readFile(join(second.storeDir, "backups/web", taken.name))));
    const restored = { appId: "web", storage: "local", name: taken.name, permissionsAck: true };
    t.is((await backups.restoreBackup(restored)).appId, "web");
    // It belongs to another host, so rotation ignores it.
    await backups.createBackup({ appId: "web" });
    t.deepEqual(
      (await backups.createBackup({ appId: "web", keep: 1 })).results[0]?.removed.includes(taken.name),
      false,
    );
  },
);

rootTest(
  `an operation without enough space does not start: the app is unchanged, and nothing is left${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const backups = daemon.client(BackupService);
    const { directory } = await install(daemon);
    const disk = join(daemon.dir, "small");
    await mkdir(disk, { mode: 0o700 });
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m,mode=700", "none", disk]);
    try {
      await backups.upsertBackupStorage({ name: "small", location: { case: "local", value: { dir: disk } } });
      await writeFile(join(directory, "data/bulk"), randomBytes(3 << 20));
      const { results } = await backups.createBackup({ appId: "web", storages: ["small", "local"] });
      t.regex(results[0]?.error ?? "", /no space left/);
      t.is(results[1]?.error, "");
      t.deepEqual(await readdir(disk), []);
      t.deepEqual((await backups.listBackups({ storage: "small" })).backups, []);
    } finally {
      execFileSync("umount", [disk]);
    }
  },
);

test("an archive restores on a host that has never seen the app", async (t) => {
  const first = await emptyDaemon();
  const { directory } = await install(first);
  await writeFile(join(directory, "data/notes"), "mine");
  const { results } = await first.client(BackupService).createBackup({ appId: "web" });
  const name = results[0]?.name ?? "";
  const second = await otherDaemon();
  const backups = second.client(BackupService);
  const disk = join(second.dir, "disk");
  await mkdir(disk, { mode: 0o700 });
  await cp(join(first.storeDir, "backups/web"), join(disk, "web"), { recursive: true });
  await backups.upsertBackupStorage({ name: "disk", location: { case: "local", value: { dir: disk } } });
  const restored = { appId: "web", storage: "disk", name, permissionsAck: true };
  t.is((await backups.restoreBackup(restored)).appId, "web");
  const app = await second.client(AppService).getApp({ id: "web" });
  t.is(await readFile(join(app.directory, "data/notes"), "utf8"), "mine");
  t.is((await second.client(AppService).startApp({ id: "web" })).state, "RUNNING");
  await second.client(AppService).stopApp({ id: "web" });
  await rm(disk, { recursive: true });
});

test("an app is stopped for its backup if requested, and runs again; its steps run before and after", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const dump = "cd $SVC_DATA_DIR; echo dumped > dump; test ! -e no-dump";
  const after = "cd $SVC_DATA_DIR; rm dump; test ! -e no-end";
  const { directory } = await install(
    daemon,
    apps,
    `backup: { mode: stop, dump: { exec: [sh, -c, "${dump}"] }, after: { exec: [sh, -c, "${after}"] } }`,
  );
  const data = (name: string) => join(directory, "data", name);
  const before = (await apps.startApp({ id: "web" })).startedAt;
  const { results, warnings } = await backups.createBackup({ appId: "web" });
  const app = await apps.getApp({ id: "web" });
  t.is(app.state, "RUNNING");
  t.notDeepEqual(app.startedAt, before);
  t.deepEqual(warnings, []);
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  t.is((await contentOf(backups.readBackupFile({ ...ref, path: "data/dump" }))).toString(), "dumped\n");
  t.is((await backups.getBackup(ref)).mode, "stop");
  await t.throwsAsync(stat(data("dump")), { code: "ENOENT" });

  await writeFile(data("no-end"), "");
  const spoiled = await backups.createBackup({ appId: "web" });
  t.regex(spoiled.warnings.join(), /^the after step "sh -c .*" of .* exited with 1$/);
  t.like(spoiled.results, [{ error: "" }]);

  await writeFile(data("no-dump"), "");
  t.like(await errorOf(backups.createBackup({ appId: "web" })), { reason: "build_failed" });
  await t.throwsAsync(stat(data("dump")), { code: "ENOENT" });
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
  await apps.stopApp({ id: "web" });
});

test("a step before a backup that never exits is killed at its deadline, and the app runs as before", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dump = "{ exec: [sh, -c, 'echo waiting; exec sleep 600'], timeout: 1s }";
  await install(daemon, apps, `backup: { mode: stop, dump: ${dump} }`);
  const { startedAt } = await apps.startApp({ id: "web" });
  const refused = await errorOf(daemon.client(BackupService).createBackup({ appId: "web" }));
  t.is(refused.reason, "build_failed");
  t.is(
    refused.message,
    'the dump step "sh -c echo waiting; exec sleep 600" of Test web server did not end within its timeout of 1 s; give it a longer `timeout` in svc.yaml',
  );
  t.like(refused.payload, { case: "commandFailed", value: { signal: "", lastLines: ["waiting"] } });
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", startedAt });
  await apps.stopApp({ id: "web" });
});

for (const mode of ["live", "pause", "stop"])
  test(`a package's step after a backup runs when its app resumes, and the app stays locked until then: ${mode}`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const after = "cd $SVC_DATA_DIR; touch began; while test ! -e go; do sleep 0.02; done";
    const { directory } = await install(
      daemon,
      apps,
      `backup: { mode: ${mode}, after: { exec: [sh, -c, "${after}"] } }`,
    );
    await apps.startApp({ id: "web" });
    const backup = daemon.client(BackupService).createBackup({ appId: "web" });
    await eventually(() => stat(join(directory, "data/began")));
    const app = await apps.getApp({ id: "web" });
    t.like(app, { state: "RUNNING", stateReason: "", operation: { kind: "backup" } });
    t.like(await errorOf(apps.stopApp({ id: "web" })), { reason: "app_busy" });
    await writeFile(join(directory, "data/go"), "");
    t.like(await backup, { warnings: [], results: [{ error: "" }] });
    t.is((await apps.getApp({ id: "web" })).operation, undefined);
    await apps.stopApp({ id: "web" });
  });

test("a canceled verification stops and leaves no temporary files", async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const { directory } = await install(daemon, daemon.client(AppService));
  await writeFile(join(directory, "data/bulk"), randomBytes(64 << 20));
  const dir = join(daemon.dir, "slow");
  await mkdir(dir, { mode: 0o700 });
  // The whole backup would take a minute.
  const location = { case: "local", value: { dir } } as const;
  await backups.upsertBackupStorage({ name: "slow", location, maxBytesPerSec: 1n << 20n });
  const { results } = await backups.createBackup({ appId: "web", storages: ["slow"] });
  const ref = { appId: "web", storage: "slow", name: results[0]?.name ?? "" };
  const trials = join(daemon.storeDir, "trials");
  const verifying = new AbortController();
  const verified = errorOf(backups.verifyBackup({ ...ref, deep: true }, { signal: verifying.signal }));
  await eventually(async () => assert.equal((await readdir(trials)).length, 1));
  verifying.abort();
  t.like(await verified, { code: "Canceled" });
  await eventually(async () => assert.deepEqual(await readdir(trials), []), 15_000);
});

test("a canceled backup or restore leaves no archive, and the app is unchanged", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const { directory } = await install(daemon, apps);
  await writeFile(join(directory, "data/bulk"), randomBytes(64 << 20));
  await writeFile(join(directory, "data/notes"), "archived");
  const isOver = () =>
    eventually(async () => {
      assert.equal((await apps.getApp({ id: "web" })).operation, undefined);
      assert.deepEqual(await readdir(join(daemon.storeDir, "spool")), []);
    }, 60_000);
  const making = new AbortController();
  const make = async (): Promise<void> => {
    for await (const { event } of backups.createBackupStream({ appId: "web" }, { signal: making.signal }))
      if (event.case === "progress" && event.value.step === "read") making.abort();
  };
  t.like(await errorOf(make()), { code: "Canceled" });
  await isOver();
  t.deepEqual((await backups.listBackups({ appId: "web" })).backups, []);

  const { results } = await backups.createBackup({ appId: "web" });
  await writeFile(join(directory, "data/notes"), "newer");
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  const restoring = new AbortController();
  let state = "";
  const restore = async (): Promise<void> => {
    for await (const { event } of backups.restoreBackupStream(ref, { signal: restoring.signal })) {
      if (event.case !== "progress" || event.value.step !== "restore" || state !== "") continue;
      ({ state } = await apps.getApp({ id: "web" }));
      restoring.abort();
    }
  };
  t.like(await errorOf(restore()), { code: "Canceled" });
  t.is(state, "RESTORING");
  await isOver();
  t.is((await apps.getApp({ id: "web" })).state, "STOPPED");
  t.is(await readFile(join(directory, "data/notes"), "utf8"), "newer");
  t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
});

test("a backup leaves out a socket with a warning, and keeps a FIFO", async (t) => {
  const daemon = await emptyDaemon();
  const { directory } = await install(daemon);
  await writeFile(join(directory, "data/notes"), "mine");
  execFileSync("mkfifo", [join(directory, "data/pipe")]);
  const server = createServer().listen(join(directory, "data/mysql.sock"));
  t.teardown(() => server.close());
  const backups = daemon.client(BackupService);
  const { results, warnings } = await backups.createBackup({ appId: "web" });
  t.is(warnings.filter((warning) => warning.includes("mysql.sock")).length, 1, warnings.join("\n"));
  const { storage = "", name = "" } = results[0] ?? {};
  await backups.verifyBackup({ appId: "web", storage, name, deep: true });
  const { appId: id } = await backups.restoreBackup({ appId: "web", storage, name, asNew: true });
  const { directory: restored } = await daemon.client(AppService).getApp({ id });
  t.deepEqual((await readdir(join(restored, "data"))).sort(), ["notes", "pipe"]);
  t.true((await stat(join(restored, "data/pipe"))).isFIFO());
});

test("two hosts with one storage keep, rotate and restore their own archives of apps with one ID", async (t) => {
  const [first, second] = [await emptyDaemon(), await otherDaemon()];
  const location = { case: "local", value: { dir: join(first.dir, "shared") } } as const;
  const names = new Map<TestDaemon, string[]>();
  for (const daemon of [second, first]) {
    const backups = daemon.client(BackupService);
    await backups.upsertBackupStorage({ name: "shared", location });
    const { directory } = await install(daemon);
    await writeFile(join(directory, "data/notes"), daemon === first ? "first" : "second");
    const made: string[] = [];
    for (let count = 0; count < 3; count++) {
      const { results } = await backups.createBackup({ appId: "web", storages: ["shared"], keep: 2 });
      made.push(results[0]?.name ?? "");
    }
    names.set(daemon, made.slice(1));
  }
  const all = (await readdir(join(first.dir, "shared/web"))).filter((name) => name.endsWith(".tar.zst"));
  t.deepEqual(all.sort(), [...names.values()].flat().sort());
  // Its own newest archive is older than the other host's.
  const { exitCode, stderr } = await runSvc([
    ...["restore", "web", "latest", "--storage", "shared", "--yes"],
    ...["--socket", second.socketPath],
  ]);
  t.is(exitCode, 0, stderr);
  const { directory } = await second.client(AppService).getApp({ id: "web" });
  t.is(await readFile(join(directory, "data/notes"), "utf8"), "second");
});
