/** Attacks of a user on other users' backups, with forged archives, and on storages. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  appendFile,
  copyFile,
  mkdir,
  readFile,
  writeFile,
  chown,
  mkdtemp,
  readdir,
  rm,
  stat,
  symlink,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { zstdDecompressSync } from "node:zlib";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { encodeFooter, type ArchiveFooter } from "../../src/backups/archives/archive-footer.ts";
import { newArchiveName } from "../../src/backups/archives/archive-name.ts";
import { LocalStorage } from "../../src/backups/storages/local-storage.ts";
import { SvcError } from "../../src/errors.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, type TestDaemon, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

// Attacks of a user on other users' backups, and with forged archives.

const emptyDaemon = sharedDaemon();

const rootTest = isRoot ? test : test.skip;
const attacker = 65_534;
const victim = 5;
const local = "local";

type Connection = Pick<TestDaemon, "client">;

async function installFrom(daemon: TestDaemon, connection: Connection): Promise<void> {
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await connection.client(AppService).installApp({ spec: dir });
}

async function backUp(connection: Connection, keep?: number): Promise<{ name: string; removed: string[] }> {
  const request = { appId: "web", ...(keep !== undefined && { keep }) };
  const { results } = await connection.client(BackupService).createBackup(request);
  return { name: results[0]?.name ?? "", removed: results[0]?.removed ?? [] };
}

async function download(
  connection: Connection,
  name: string,
  appId = "web",
  storage = local,
): Promise<Buffer> {
  const pieces = connection.client(BackupService).downloadBackup({ appId, storage, name });
  return Buffer.concat(await Array.fromAsync(pieces, ({ content }) => content?.data ?? new Uint8Array()));
}

/** Root installs "web" with these permissions and a license, and accepts both. */
async function installRoots(daemon: TestDaemon, permissions: string): Promise<string> {
  const dir = join(daemon.dir, `package${permissions}`);
  const manifest = `permissions: [${permissions}]`;
  await writePackage(dir, await freePort(), { manifest, files: { LICENSE: "Pay me." } });
  const acks = { licenseAck: true, permissionsAck: true };
  return (await daemon.client(AppService).installApp({ spec: dir, ...acks })).directory;
}

const privileged = "The app runs privileged: it can do everything that root can.";
const fromElsewhere = /the app belongs to root here, and the archive is from another host/i;

function upload(connection: Connection, archive: Buffer) {
  return connection.client(BackupService).uploadBackup(
    (async function* () {
      yield { storage: local };
      yield { storage: local, content: { data: archive } };
    })(),
  );
}

/** The same archive with different metadata. */
async function forged(archive: Buffer, change: (footer: ArchiveFooter) => void): Promise<Buffer> {
  const end = archive.length - 48;
  const at = end - archive.readUInt32LE(end + 32);
  const footer = JSON.parse(zstdDecompressSync(archive.subarray(at, end)).toString()) as ArchiveFooter;
  change(footer);
  return Buffer.concat([archive.subarray(0, at - 8), await encodeFooter(footer)]);
}

rootTest(`a new app with the ID of a removed one does not get its backups${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await using theirs = await daemon.as(victim);
  await installFrom(daemon, theirs);
  const { name } = await backUp(theirs);
  await theirs.client(AppService).removeApp({ id: "web" });

  await installFrom(daemon, mine);
  await backUp(mine);
  const { removed } = await backUp(mine, 1);
  t.is(removed.length, 1);
  t.not(removed[0], name);
  const { backups } = await theirs.client(BackupService).listBackups({ appId: "web" });
  t.deepEqual(
    backups.map((each) => each.name),
    [name],
  );

  // Root cannot restore it into another user's app, either.
  const refused = await errorOf(
    daemon.client(BackupService).restoreBackup({ appId: "web", storage: local, name }),
  );
  t.is(refused.reason, "not_possible");
  t.regex(refused.message, /is of uid 5, and app "web" is uid 65534's; restore it as a new app/);
});

rootTest(`an archive cannot choose the user who reads and unpacks it${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const { name } = await backUp(mine);
  const archive = await download(mine, name);
  for (const uid of [0, victim]) {
    const bad = await forged(archive, ({ app }) => (app.run_uid = uid));
    t.like(await errorOf(upload(mine, bad)), { reason: "invalid_request" });
    // An archive that was not created by the store.
    await writeFile(join(daemon.storeDir, "backups/web", name), bad);
    for (const connection of [mine, daemon]) {
      const ref = { appId: "web", storage: local, name };
      const refusal = await errorOf(connection.client(BackupService).verifyBackup({ ...ref, deep: true }));
      t.like(refusal, { reason: "archive_damaged" });
    }
  }
});

rootTest(`a test restore as root unpacks only root's archives${needsRoot}`, async (t) => {
  const unknown = 3_999_999_999;
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const archive = await download(mine, (await backUp(mine)).name);
  const root = daemon.client(BackupService);
  const verify = (ref: { appId: string; name: string }, deep: boolean) =>
    root.verifyBackup({ ...ref, storage: local, deep });
  for (const [app, why] of [
    [{ owner_uid: unknown, run_uid: unknown }, /uid 3999999999, which has no account here/],
    [{ owner_uid: 0, run_uid: unknown }, /uid 3999999999, which has no account here/],
    [{ owner_uid: 0, run_uid: 0 }, /app "web" is uid 65534's here/],
  ] as const) {
    const ref = await upload(daemon, await forged(archive, (footer) => Object.assign(footer.app, app)));
    t.false((await verify(ref, false)).restored);
    const refusal = await errorOf(verify(ref, true));
    t.like(refusal, { reason: "not_possible" });
    t.regex(refusal.message, why);
  }
  await mine.client(AppService).removeApp({ id: "web" });
  const ofRoot = await upload(daemon, await forged(archive, ({ app }) => (app.owner_uid = app.run_uid = 0)));
  t.true((await verify(ofRoot, true)).restored);
});

rootTest(`an archive's metadata about its app is short and in one line${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const archive = await download(mine, (await backUp(mine)).name);
  for (const change of [
    (app: ArchiveFooter["app"]) => (app.name = "x".repeat(1 << 20)),
    (app: ArchiveFooter["app"]) => (app.name = "x\0ExecStartPre=+/bin/sh"),
    (app: ArchiveFooter["app"]) => (app.version = "1\n2"),
    (app: ArchiveFooter["app"]) => (app.id = "__proto__"),
    (app: ArchiveFooter["app"]) => (app.id = "--help"),
    (app: ArchiveFooter["app"]) => (app.origin = { ...app.origin, tag: "x".repeat(1 << 20) }),
  ]) {
    const bad = await forged(archive, ({ app }) => change(app));
    t.like(await errorOf(upload(mine, bad)), { reason: "invalid_request" });
  }
});

rootTest(`an archive cannot name a directory as its commit${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await installFrom(daemon, mine);
  const archive = await download(mine, (await backUp(mine)).name);
  // An upgrade would look for `<commit>.git` in the daemon's cache, and remove it as root if it is not a cached commit.
  for (const commit of ["../../../../../../../../root/project/", "main", "A".repeat(40)]) {
    const origin = { kind: "git", url: "https://example.org/web", source: "", branch: "", tag: "", commit };
    const bad = await forged(archive, ({ app }) => (app.origin = origin));
    t.like(await errorOf(upload(mine, bad)), { reason: "invalid_request" });
  }
});

rootTest(
  `an archive that a user uploads for another user's app is never its newest${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using mine = await daemon.as(attacker);
    await using theirs = await daemon.as(victim);
    await installFrom(daemon, theirs);
    const { name } = await backUp(theirs);
    await installFrom(daemon, mine);
    const own = "web-nobody";
    const { results } = await mine.client(BackupService).createBackup({ appId: own });
    const archive = await download(mine, results[0]?.name ?? "", own);
    await upload(
      mine,
      await forged(archive, (footer) => {
        footer.app.id = "web";
        footer.created_at = "2999-01-01T00:00:00.000Z";
      }),
    );
    const output = await verifyNewest(daemon);
    t.regex(output, new RegExp(name));
    t.notRegex(output, /2999/);
  },
);

test("an archive that someone replaced on its storage is not read", async (t) => {
  const daemon = await emptyDaemon();
  await installFrom(daemon, daemon);
  const { name } = await backUp(daemon);
  const ref = { appId: "web", storage: local, name };
  const other = await forged(await download(daemon, name), ({ app }) => (app.name = "other"));
  await writeFile(join(daemon.storeDir, "backups/web", name), other);
  const backups = daemon.client(BackupService);
  for (const read of [
    () => backups.restoreBackup({ ...ref, permissionsAck: true }),
    () => backups.verifyBackup({ ...ref, deep: true }),
    () => backups.browseBackup(ref),
    () => download(daemon, name),
  ]) {
    const error = await errorOf(read());
    t.is(error.reason, "archive_damaged");
    t.regex(error.message, /was replaced: it differs from the one that this node stored/);
  }
});

test("an archive of the future that names this node does not pass as its newest", async (t) => {
  const daemon = await emptyDaemon();
  await installFrom(daemon, daemon);
  const { name } = await backUp(daemon);
  const future = name.replace(/^.{19}/, "29990101T000000000Z");
  const archive = await forged(
    await download(daemon, name),
    (footer) => (footer.created_at = "2999-01-01T00:00:00.000Z"),
  );
  await writeFile(join(daemon.storeDir, "backups/web", future), archive);
  const backups = daemon.client(BackupService);
  const listed = (await backups.listBackups({ appId: "web" })).backups;
  t.deepEqual(
    listed.map((each) => [each.name, each.fromThisNode]),
    [
      [future, false],
      [name, true],
    ],
  );
  await backups.verifyBackup({ appId: "web", storage: local, name: future, deep: true });
  const provenAt = async () => {
    const app = await daemon.client(AppService).getApp({ id: "web" });
    return app.backups?.lastProvenAt;
  };
  t.is(await provenAt(), undefined);
  t.regex(await verifyNewest(daemon), new RegExp(`${name} can be restored`));
  t.not(await provenAt(), undefined);
});

/** @returns the output of a scheduled verification of the app's newest archive */
async function verifyNewest(daemon: TestDaemon): Promise<string> {
  const schedules = daemon.client(ScheduleService);
  const action = { type: "backup_verify", app: "web" };
  await schedules.upsertSchedule({ id: "prove", trigger: "hourly", action });
  await schedules.runSchedule({ id: "prove" });
  return eventually(async () => {
    const { runs } = await schedules.listScheduleRuns({ id: "prove" });
    assert.ok(runs[0]?.endedAt);
    return runs[0].output;
  }, 60_000);
}

rootTest(`a forged archive does not mark another user's app as verified${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using mine = await daemon.as(attacker);
  await using theirs = await daemon.as(victim);
  await installFrom(daemon, theirs);
  await backUp(theirs);
  const dir = join(daemon.dir, "own");
  await writePackage(dir, await freePort());
  const { id } = await mine.client(AppService).installApp({ spec: dir, name: "own" });
  const { results } = await mine.client(BackupService).createBackup({ appId: id });
  const own = await download(mine, results[0]?.name ?? "", id);
  const ref = await upload(mine, await forged(own, ({ app }) => (app.id = "web")));
  const archive = { appId: "web", storage: local, name: ref.name };
  await mine.client(BackupService).verifyBackup({ ...archive, deep: true });
  await mine.client(BackupService).restoreBackup({ ...archive, asNew: true });
  const { backups } = await theirs.client(AppService).getApp({ id: "web" });
  t.not(backups?.lastBackupAt, undefined);
  t.is(backups?.lastProvenAt, undefined);
});

rootTest(`a backup of another host is not given to a user with only the same uid${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using theirs = await daemon.as(victim);
  const roots = daemon.client(BackupService);
  const shared = join(daemon.dir, "shared");
  const location = { case: "local", value: { dir: shared } } as const;
  await roots.upsertBackupStorage({ name: "shared", location });
  await installFrom(daemon, theirs);
  const archive = await download(theirs, (await backUp(theirs)).name);
  await theirs.client(AppService).removeApp({ id: "web" });
  const far = (owner: string | undefined) =>
    forged(archive, (footer) => {
      footer.host = `ffffffff${footer.host.slice(8)}`;
      footer.app.owner = owner ?? footer.app.owner;
    });
  const put = async (owner: string | undefined) => {
    const { name } = await upload(daemon, await far(owner));
    await mkdir(join(shared, "web"), { recursive: true, mode: 0o700 });
    await copyFile(join(daemon.storeDir, "backups/web", name), join(shared, "web", name));
    return { appId: "web", storage: "shared", name };
  };
  const [others, own] = [await put("alice"), await put(undefined)];

  const refused = await errorOf(roots.restoreBackup(others));
  t.is(refused.reason, "not_possible");
  t.regex(refused.message, /its owner is "alice" \(uid 5\) on another host, and uid 5 is "[^"]+" here/);
  const mine = theirs.client(BackupService);
  for (const work of [
    () => mine.restoreBackup({ ...others, asNew: true }),
    () => mine.browseBackup(others),
    () => mine.deleteBackup(others),
    () => download(theirs, others.name, "web", "shared"),
  ])
    t.is((await errorOf(work())).reason, "not_found");
  const encrypted = { ...others, name: `${others.name}.age` };
  await copyFile(join(shared, "web", others.name), join(shared, "web", encrypted.name));
  t.is((await errorOf(mine.deleteBackup(encrypted))).reason, "root_required");

  t.is((await mine.browseBackup(own)).entries.length > 0, true);
  t.is((await roots.restoreBackup(own)).appId, "web");
  await t.notThrowsAsync(mine.deleteBackup(own));
});

rootTest(
  `an archive gives root's app only permissions that root accepted on this host${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const backups = daemon.client(BackupService);
    await installRoots(daemon, "privileged");
    const { name } = await backUp(daemon);
    const archive = await download(daemon, name);
    // From here on it belongs to another host.
    await backups.deleteBackup({ appId: "web", storage: local, name });
    await daemon.client(AppService).removeApp({ id: "web" });
    const ref = await upload(daemon, archive).then((put) => ({
      appId: "web",
      storage: local,
      name: put.name,
    }));

    for (const isThere of [false, true]) {
      if (isThere) {
        await installFrom(daemon, daemon);
        t.like(await errorOf(backups.restoreBackup(ref)), { code: "FailedPrecondition" });
      }
      const plan = await backups.restoreBackup({ ...ref, dryRun: true });
      t.like(plan, { owner: 0, ownerName: "root", licenses: ["LICENSE"] });
      t.regex(plan.permissions[0] ?? "", fromElsewhere);
      t.deepEqual(plan.permissions.slice(1), [privileged]);
      for (const [acks, fields] of [
        [{}, /with license_ack and permissions_ack true/],
        [{ licenseAck: true }, /with permissions_ack true/],
        [{ permissionsAck: true }, /with license_ack true/],
      ] as const) {
        const asked = await errorOf(backups.restoreBackup({ ...ref, ...acks }));
        t.is(asked.reason, "license_required");
        t.regex(asked.message, fields);
      }
    }
    const some = await errorOf(backups.restoreBackup({ ...ref, paths: ["repo/server.mjs"] }));
    t.regex(some.message, /with permissions_ack true/);

    const acks = { licenseAck: true, permissionsAck: true };
    t.is((await backups.restoreBackup({ ...ref, ...acks })).appId, "web");
    // The permissions were accepted here; whether root runs an archive from elsewhere must be confirmed each time.
    t.like(await backups.restoreBackup({ ...ref, dryRun: true }), { licenses: [] });
    t.is((await backups.restoreBackup({ ...ref, dryRun: true })).permissions.length, 1);
  },
);

rootTest(`archives created by this store are restored without a question${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  const backups = daemon.client(BackupService);
  const directory = await installRoots(daemon, "privileged");
  const ref = { appId: "web", storage: local, name: (await backUp(daemon)).name };
  const archive = await download(daemon, ref.name);
  t.is((await backups.restoreBackup(ref)).appId, "web");
  t.is((await backups.restoreBackup({ ...ref, asNew: true, newName: "second" })).appId, "second");
  const again = await upload(daemon, archive);
  t.is((await backups.restoreBackup({ ...ref, name: again.name, asNew: true, newName: "third" })).owner, 0);

  // The app's user can change the checkout, which must not give the app more permissions.
  await appendFile(join(directory, "repo/svc.yaml"), "\npermissions: [privileged, host_pid]\n");
  const text = await readFile(join(directory, "repo/svc.yaml"), "utf8");
  await writeFile(join(directory, "repo/svc.yaml"), text.replace("permissions: [privileged]\n", ""));
  const changed = await backUp(daemon);
  const asked = await errorOf(backups.restoreBackup({ ...ref, name: changed.name }));
  t.is(asked.reason, "license_required");
  t.regex(asked.message, /with permissions_ack true/);

  // A forged archive that replaces one of the store.
  const forgery = await forged(archive, ({ app }) => app.accepted.permissions.push("host_pid"));
  await writeFile(join(daemon.storeDir, "backups/web", ref.name), forgery);
  await daemon.client(AppService).removeApp({ id: "web" });
  t.is((await errorOf(backups.restoreBackup({ ...ref, dryRun: true }))).reason, "archive_damaged");
});

rootTest(`an archive asks a user for its licenses, and not for permissions${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await installRoots(daemon, "privileged");
  const archive = await download(daemon, (await backUp(daemon)).name);
  await daemon.client(AppService).removeApp({ id: "web" });
  await using mine = await daemon.as(attacker);
  const bad = await forged(archive, ({ app }) => (app.owner_uid = app.run_uid = attacker));
  const { name } = await upload(daemon, bad);
  const backups = mine.client(BackupService);
  const ref = { appId: "web", storage: local, name };
  t.like(await backups.restoreBackup({ ...ref, dryRun: true }), { owner: attacker, permissions: [] });
  t.regex((await errorOf(backups.restoreBackup(ref))).message, /ships LICENSE: .* with license_ack true/);
  t.is((await backups.restoreBackup({ ...ref, licenseAck: true })).owner, attacker);
});

// Attacks of a user on backup storages: to place archives there that root restores, and to fill the disk.

function asAttacker(...argv: string[]) {
  const drop = [`--reuid=${attacker}`, `--regid=${attacker}`, "--clear-groups", "--"];
  return promisify(execFile)("setpriv", [...drop, ...argv]);
}

rootTest(`root uses no storage below a directory that another user can change${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  const backups = daemon.client(BackupService);
  await writePackage(join(daemon.dir, "package"), await freePort());
  await daemon.client(AppService).installApp({ spec: join(daemon.dir, "package") });
  const home = join(daemon.dir, "home");
  const dir = join(home, "backups");
  await mkdir(home);
  await backups.upsertBackupStorage({ name: "disk", location: { case: "local", value: { dir } } });
  const ref = { appId: "web", storage: "disk" };
  const { results } = await backups.createBackup({ appId: "web", storages: ["disk"] });
  t.is(results[0]?.error, "");
  const name = results[0]?.name ?? "";

  // From here on the user can place an archive there that claims to be root's.
  await chown(home, attacker, attacker);
  await asAttacker("mv", dir, join(home, "old"));
  await mkdir(join(dir, "web"), { recursive: true, mode: 0o700 });
  await copyFile(join(home, "old/web", name), join(dir, "web", name));
  const problem = /^other users can replace the directory of the storage "disk": use one below/;
  t.regex((await errorOf(backups.restoreBackup({ ...ref, name }))).message, problem);
  t.regex((await errorOf(backups.deleteBackup({ ...ref, name }))).message, problem);
  t.regex((await backups.listBackups(ref)).errors[0]?.error ?? "", problem);
  const again = await backups.createBackup({ appId: "web", storages: ["disk"] });
  t.regex(again.results[0]?.error ?? "", problem);

  // Only root sees its directory.
  const { checks } = await backups.testBackupStorage({ name: "disk" });
  t.regex(checks[0]?.error ?? "", /\(they can change \S+home, above \S+backups\)/);
  await using user = await daemon.as(attacker);
  const listed = await user.client(BackupService).listBackups({ storage: "disk" });
  t.false(listed.errors[0]?.error.includes(daemon.dir) ?? true);

  // Root does not write through the user's link, either.
  const secret = join(daemon.dir, "roots");
  await mkdir(secret, { mode: 0o700 });
  await asAttacker("ln", "-s", secret, join(home, "link"));
  const value = { dir: join(home, "link") };
  await backups.upsertBackupStorage({ name: "link", location: { case: "local", value } });
  const linked = await backups.createBackup({ appId: "web", storages: ["link"] });
  t.regex(linked.results[0]?.error ?? "", /other users can replace the directory of the storage "link":/);
  t.deepEqual(await readdir(secret), []);

  // The access of a user by an access control list is not part of the mode.
  const shared = join(daemon.dir, "shared");
  await mkdir(shared);
  await promisify(execFile)("setfacl", ["--modify", `user:${attacker}:rwx`, shared]);
  const granted = { dir: join(shared, "backups") };
  await backups.upsertBackupStorage({ name: "shared", location: { case: "local", value: granted } });
  const there = await backups.createBackup({ appId: "web", storages: ["shared"] });
  t.regex(there.results[0]?.error ?? "", /other users can replace the directory of the storage "shared":/);
});

rootTest(`no access to a storage follows a link of another user${needsRoot}`, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-storage-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const [home, secret] = [join(dir, "home"), join(dir, "secret")];
  await mkdir(home);
  await mkdir(join(secret, "web"), { recursive: true, mode: 0o700 });
  const key = {
    appId: "web",
    name: newArchiveName({ createdAtMs: 1, appId: "web", ownerUid: 0, host: "0123abcd" }),
  };
  const names = [key.name, `.${key.name}.tmp`];
  for (const name of names) await writeFile(join(secret, "web", name), "root's");
  await chown(home, attacker, attacker);
  await symlink(secret, join(home, "storage"));
  const { signal } = new AbortController();
  for (const path of ["storage", "storage/missing"]) {
    const storage = new LocalStorage("disk", join(home, path), 0);
    for (const access of [
      () => storage.list(undefined),
      () => storage.put(key, join(secret, "web", key.name), { signal }),
      () => storage.open(key),
      () => storage.remove(key),
      () => storage.abandon(key),
    ])
      await t.throwsAsync(
        access,
        { instanceOf: SvcError, message: /other users can replace/ },
        String(access),
      );
  }
  t.deepEqual(
    (await readdir(secret, { recursive: true })).toSorted(),
    ["web", ...names.map((name) => `web/${name}`)].toSorted(),
  );
});

rootTest(
  `a user's archive does not fill the host's disk during its upload to a bucket${needsRoot}`,
  async (t) => {
    const max = 1_000_000;
    await using daemon = await startDaemon({ config: `[limits]\nmax_backup_bytes_per_user = ${max}\n` });
    const value = {
      ...{ endpoint: "http://127.0.0.1:9", bucket: "backups", prefix: "" },
      ...{ accessKey: "key-of-the-tests", secretKey: "secret-of-the-tests" },
    };
    const location = { case: "s3", value } as const;
    await daemon.client(BackupService).upsertBackupStorage({ name: "far", location });
    await using user = await daemon.as(attacker);
    const spool = join(daemon.storeDir, "spool");
    let mostBytes = 0;
    const upload = user.client(BackupService).uploadBackup(
      (async function* () {
        yield { storage: "far" };
        for (let piece = 0; piece < 40; piece++) {
          yield { storage: "far", content: { data: new Uint8Array(100_000) } };
          for (const name of await readdir(spool).catch(() => [])) {
            const { size } = await stat(join(spool, name)).catch(() => ({ size: 0 }));
            mostBytes = Math.max(mostBytes, size);
          }
        }
      })(),
    );
    const refused = await errorOf(upload);
    t.is(refused.reason, "too_many");
    t.regex(refused.message, /on their way to the storage "far".*max_backup_bytes_per_user \(1000000\)/);
    t.true(mostBytes <= max, `${mostBytes} bytes`);
    t.deepEqual(await readdir(spool), []);
  },
);
