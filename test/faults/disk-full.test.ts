/**
 * A full disk: operations that need space fail with a typed error and leave the old state; operations that free space
 * work.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, mkdtemp, readFile, readdir, rm, stat, statfs, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { Age } from "../../src/backups/encryption/age.ts";
import { EncryptedForms } from "../../src/backups/encryption/encrypted-forms.ts";
import { Spool } from "../../src/backups/archives/spool.ts";
import { hasAge, needsAge, newAgeKey } from "../support/age.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { programs } from "../support/programs.ts";

const run = promisify(execFile);
const rootTest = isRoot ? test : test.skip;

async function smallDisk(sizeMiB: number) {
  const dir = await mkdtemp(join(tmpdir(), "svc-disk-"));
  await run("mount", ["-t", "tmpfs", "-o", `size=${sizeMiB}m,mode=755`, "tmpfs", dir]);
  return {
    dir,
    /** Uses every remaining block, including those too few for a larger write. */
    fill: async () => {
      for (const chunkBytes of [1024 * 1024, 4096])
        await fillWith(join(dir, `filler-${chunkBytes}`), chunkBytes);
    },
    /** Leaves only this many bytes free. */
    leave: async (freeBytes: number) => {
      const filler = join(dir, "filler");
      for (const name of await readdir(dir)) if (name.startsWith("filler")) await rm(join(dir, name));
      const { bavail, bsize } = await statfs(dir);
      await run("fallocate", ["-l", String(bavail * bsize - freeBytes), filler]);
    },
    [Symbol.asyncDispose]: async () => {
      await run("umount", ["--lazy", dir]);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function fillWith(path: string, chunkBytes: number): Promise<void> {
  const file = createWriteStream(path);
  const chunk = Buffer.alloc(chunkBytes);
  await new Promise<void>((resolve) => {
    file.on("error", () => resolve());
    const write = (): void => void file.write(chunk, (error) => (error ? resolve() : write()));
    write();
  });
}

rootTest(
  `the old state is intact on a full disk, and apps can be stopped and removed${needsRoot}`,
  async (t) => {
    await using disk = await smallDisk(64);
    const dir = join(disk.dir, "svc");
    await mkdir(dir);
    await using daemon = await startDaemon({ dir });
    const apps = daemon.client(AppService);
    const source = await mkdtemp(join(tmpdir(), "svc-package-"));
    await writePackage(source, await freePort(), { files: { ballast: "x".repeat(4 * 1024 * 1024) } });
    await apps.installApp({ spec: source });
    await apps.startApp({ id: "web" });
    await disk.fill();

    for (const [name, call] of Object.entries({
      install: () => apps.installApp({ spec: source }),
      clone: () => apps.cloneApp({ id: "web" }),
      upgrade: async () => {
        await apps.stopApp({ id: "web" });
        await apps.upgradeApp({ id: "web" });
      },
    })) {
      t.like(await errorOf(call()), { code: "ResourceExhausted", reason: "disk_full" }, name);
      t.deepEqual(
        (await apps.listApps({})).apps.map(({ id, version, state }) => [id, version, state]),
        [["web", "1.0.0", name === "upgrade" ? "STOPPED" : "RUNNING"]],
        `after the ${name}`,
      );
      t.deepEqual(await readdir(join(daemon.storeDir, "apps")), ["web"], `after the ${name}`);
      t.true((await stat(join(daemon.storeDir, "apps", "web", "repo", "svc.yaml"))).isFile());
    }
    t.true((await apps.removeApp({ id: "web" })).freedBytes > 4_000_000n);
    t.deepEqual((await apps.listApps({})).apps, []);
    // The space freed by the removal is enough to continue.
    t.is((await apps.installApp({ spec: source })).state, "STOPPED");
    await rm(source, { recursive: true });
  },
);

rootTest(
  `an app is stopped although its exit cannot be written, and the next daemon starts it${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    const apps = daemon.client(AppService);
    const source = await mkdtemp(join(tmpdir(), "svc-package-"));
    await writePackage(source, await freePort());
    // The database has space; the files beside the running app have none.
    const runs = join(daemon.storeDir, "run");
    await run("mount", ["-t", "tmpfs", "-o", "size=1m,mode=711", "tmpfs", runs]);
    try {
      await apps.installApp({ spec: source });
      await apps.startApp({ id: "web" });
      for (const chunkBytes of [64 * 1024, 4096, 1])
        await fillWith(join(runs, `filler-${chunkBytes}`), chunkBytes);
      t.is((await apps.stopApp({ id: "web" })).state, "STOPPED");
      await daemon.restart();
      const app = await daemon.client(AppService).getApp({ id: "web" });
      t.like(app, { state: "STOPPED", stateReason: "", enabled: false });
      for (const chunkBytes of [64 * 1024, 4096, 1]) await rm(join(runs, `filler-${chunkBytes}`));
      t.is((await daemon.client(AppService).startApp({ id: "web" })).state, "RUNNING");
      // Nothing else finds it once the disk is gone.
      await daemon.client(AppService).stopApp({ id: "web" });
    } finally {
      await run("umount", ["--lazy", runs]);
      await rm(source, { recursive: true });
    }
  },
);

rootTest(
  `schedules are unchanged on a full disk, an active run is recorded, and jobs can be removed${needsRoot}`,
  async (t) => {
    await using disk = await smallDisk(64);
    const dir = join(disk.dir, "svc");
    await mkdir(dir);
    await using daemon = await startDaemon({ dir });
    const schedules = daemon.client(ScheduleService);
    const job = (id: string, comment: string) => ({
      id,
      comment,
      trigger: "0 0 1 1 *",
      action: { type: "shell", command: "echo started; sleep 600" },
    });
    for (const id of ["going", "idle"]) await schedules.upsertSchedule(job(id, "old"));
    await schedules.runSchedule({ id: "going" });
    await disk.fill();

    for (const [name, call] of Object.entries({
      edit: () => schedules.upsertSchedule(job("idle", "new")),
      add: () => schedules.upsertSchedule(job("more", "new")),
      push: () =>
        schedules.replaceManagedSchedules({ managedBy: "platform", schedules: [job("pushed", "new")] }),
      run: () => schedules.runSchedule({ id: "idle" }),
    })) {
      t.like(await errorOf(call()), { code: "ResourceExhausted", reason: "disk_full" }, name);
    }
    const jobs = (await schedules.listSchedules({})).schedules;
    t.deepEqual(
      jobs.map(({ id, comment, lastRun }) => [id, comment, lastRun?.status]),
      [
        ["going", "old", "RUNNING"],
        ["idle", "old", undefined],
      ],
    );
    t.is((await schedules.cancelScheduleRun({ id: "going" })).status, "CANCELED");
    const { runs } = await schedules.listScheduleRuns({ id: "going" });
    t.like(
      runs[0],
      { status: "CANCELED", truncated: true, output: "" },
      "the last space is not used for outputs",
    );
    await schedules.removeSchedule({ id: "going" });
    t.is((await schedules.listSchedules({})).schedules.length, 1);
  },
);

rootTest(
  `a backup and a restore without space fail, and leave the app and the archives unchanged${needsRoot}`,
  async (t) => {
    await using disk = await smallDisk(256);
    const dir = join(disk.dir, "svc");
    await mkdir(dir);
    const elsewhere = await mkdtemp(join(tmpdir(), "svc-archives-"));
    await using daemon = await startDaemon({ dir });
    const apps = daemon.client(AppService);
    const backups = daemon.client(BackupService);
    const source = await mkdtemp(join(tmpdir(), "svc-package-"));
    await writePackage(source, await freePort());
    const { directory } = await apps.installApp({ spec: source });
    const bulk = randomBytes(40 << 20);
    await writeFile(join(directory, "data/bulk"), bulk);
    await backups.upsertBackupStorage({
      name: "elsewhere",
      location: { case: "local", value: { dir: elsewhere } },
    });
    const create = () => backups.createBackup({ appId: "web", storages: ["elsewhere"], mode: "stop" });
    const [made] = (await create()).results;
    const ref = { appId: "web", storage: "elsewhere", name: made?.name ?? "" };
    await apps.startApp({ id: "web" });
    const after = async (what: string) => {
      const { backups: listed } = await backups.listBackups({});
      t.deepEqual(
        listed.map(({ name }) => name),
        [ref.name],
        what,
      );
      t.deepEqual(await readdir(join(daemon.storeDir, "spool")), [], what);
      t.true(bulk.equals(await readFile(join(directory, "data/bulk"))), what);
      t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"], what);
      t.is((await apps.getApp({ id: "web" })).state, "RUNNING", what);
    };

    // Enough to start, but not for the complete archive and the disk's reserve.
    await disk.leave(85 << 20);
    t.like(await errorOf(create()), { code: "ResourceExhausted", reason: "disk_full" });
    await after("a backup");
    // A backup without space does not even stop the app.
    await disk.leave(60 << 20);
    const { startedAt } = await apps.getApp({ id: "web" });
    t.like(await errorOf(create()), { code: "ResourceExhausted", reason: "disk_full" });
    t.deepEqual((await apps.getApp({ id: "web" })).startedAt, startedAt, "the app was never stopped");
    await after("a backup that never began");
    const restore = () => backups.restoreBackup({ ...ref, stopApp: true });
    t.like(await errorOf(restore()), { code: "ResourceExhausted", reason: "disk_full" });
    await after("a restore");
    t.like(await backups.verifyBackup(ref), { restored: false }, "reading needs no space");
    await disk.leave(150 << 20);
    t.like(await restore(), { restarted: true });
    await after("a restore that had room");
    await apps.stopApp({ id: "web" });
    for (const each of [source, elsewhere]) await rm(each, { recursive: true });
  },
);

rootTest(
  `a disk that becomes full in the middle of a restore leaves the app unchanged${needsRoot}`,
  async (t) => {
    await using disk = await smallDisk(320);
    const dir = join(disk.dir, "svc");
    await mkdir(dir);
    const elsewhere = await mkdtemp(join(tmpdir(), "svc-archives-"));
    await using daemon = await startDaemon({ dir });
    const apps = daemon.client(AppService);
    const backups = daemon.client(BackupService);
    const source = await mkdtemp(join(tmpdir(), "svc-package-"));
    await writePackage(source, await freePort());
    const { directory } = await apps.installApp({ spec: source });
    const data = (name: string) => join(directory, "data", name);
    await writeFile(data("bulk"), randomBytes(64 << 20));
    await writeFile(data("notes"), "archived");
    // At this rate there is time to fill the disk while the archive is read.
    await backups.upsertBackupStorage({
      name: "elsewhere",
      location: { case: "local", value: { dir: elsewhere } },
      maxBytesPerSec: BigInt(6 << 20),
    });
    const { results } = await backups.createBackup({ appId: "web", storages: ["elsewhere"] });
    const ref = { appId: "web", storage: "elsewhere", name: results[0]?.name ?? "" };
    const bulk = randomBytes(32 << 20);
    await writeFile(data("bulk"), bulk);
    await writeFile(data("notes"), "newer");
    await apps.startApp({ id: "web" });

    let laidOut = 0n;
    const restoring = async (): Promise<void> => {
      for await (const { event } of backups.restoreBackupStream({ ...ref, stopApp: true })) {
        if (event.case !== "progress" || laidOut > 0n) continue;
        laidOut = event.value.doneBytes ?? 0n;
        if (laidOut === 0n) continue;
        await disk.leave(8 << 20);
        await disk.fill();
      }
    };
    const failure = await errorOf(restoring());
    t.like(failure, { code: "ResourceExhausted", reason: "disk_full" }, failure.message);
    t.true(laidOut > 0n && laidOut < 64n << 20n, `it was in the middle: ${laidOut}`);
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING", "the app was never stopped");
    t.true(bulk.equals(await readFile(data("bulk"))));
    t.is(await readFile(data("notes"), "utf8"), "newer");
    t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"]);
    t.is((await statfs(disk.dir)).bavail > 0, true, "the unpacked files are gone");

    await disk.leave(150 << 20);
    await eventually(async () => {
      assert.equal((await apps.getApp({ id: "web" })).operation, undefined);
    }, 60_000);
    t.like(await backups.restoreBackup({ ...ref, stopApp: true }), { restarted: true });
    t.is(await readFile(data("notes"), "utf8"), "archived");
    await apps.stopApp({ id: "web" });
    for (const each of [source, elsewhere]) await rm(each, { recursive: true });
  },
);

(isRoot && hasAge ? test : test.skip)(
  `where little room is left an archive is encrypted once it is made${needsRoot}${needsAge}`,
  async (t) => {
    await using disk = await smallDisk(200);
    const key = await newAgeKey(disk.dir, "key.txt");
    const age = new Age(programs.ageThread);
    const spool = new Spool(join(disk.dir, "spool"), { bootId: "test", pid: process.pid, startTicks: 0 });
    {
      await using file = await spool.create();
      await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent: true });
      const form = forms.for([key.recipient], {});
      const plain = randomBytes(40 << 20);
      await file.append(plain.subarray(0, 20 << 20));
      await file.append(plain.subarray(20 << 20));
      t.is((await readdir(join(disk.dir, "spool"))).length, 1, "the archive comes first");
      await file.end();
      const { path } = await form;
      const opened = await run("age", ["-d", "-i", key.file, path], {
        encoding: "buffer",
        maxBuffer: 1 << 30,
      });
      t.true(opened.stdout.equals(plain));
    }
    age[Symbol.dispose]();
  },
);
