/** Attacks of a user on backup storages: to place archives there that root restores, and to fill the disk. */
import { execFile } from "node:child_process";
import { chown, copyFile, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { newArchiveName } from "../../src/backups/archives/archive-name.ts";
import { LocalStorage } from "../../src/backups/storages/local-storage.ts";
import { SvcError } from "../../src/errors.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { freePort, writePackage } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const attacker = 65_534;

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
