/**
 * An app whose directory was removed externally: operations on its files report it, and a backup restores everything.
 */
import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();
const nobody = 65534;
const owners = isRoot
  ? { "the daemon's user": undefined, "another user": nobody }
  : { "the user": undefined };

for (const [owner, uid] of Object.entries(owners)) {
  test(`an app of ${owner} whose directory is gone is restored from a backup`, async (t) => {
    const daemon = await emptyDaemon();
    await using user = uid === undefined ? undefined : await daemon.as(uid);
    const apps = (user ?? daemon).client(AppService);
    const backups = (user ?? daemon).client(BackupService);
    const spec = join(daemon.dir, "package");
    await writePackage(spec, await freePort(), { id: "lost" });
    await apps.installApp({ spec });
    await apps.startApp({ id: "lost" });
    const directory = join(daemon.storeDir, "apps/lost");
    const file = join(directory, "volumes/media/kept");
    await writeFile(file, "kept");
    const { results } = await backups.createBackup({ appId: "lost", storages: ["local"] });

    await rm(directory, { recursive: true });

    const message =
      'the directory of app "lost" is gone: restore a backup of it, or remove it and install it again';
    const works: Record<string, () => Promise<unknown>> = {
      upgrade: () => apps.upgradeApp({ id: "lost", stopApp: true }),
      clone: () => apps.cloneApp({ id: "lost" }),
      backup: () => backups.createBackup({ appId: "lost", storages: ["local"] }),
    };
    for (const [what, work] of Object.entries(works)) {
      const error = await errorOf(work());
      t.true(error.message.startsWith(message), `${what}: ${error.message}`);
    }
    const ref = { appId: "lost", storage: "local", name: results[0]?.name ?? "", stopApp: true };
    t.like(await backups.restoreBackup(ref), { appId: "lost", restarted: true });
    t.is(await readFile(file, "utf8"), "kept");
    await eventually(async () => assert.equal((await apps.getApp({ id: "lost" })).state, "RUNNING"));
    await apps.removeApp({ id: "lost" });
  });
}
