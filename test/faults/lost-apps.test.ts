/**
 * An operation on an app that svc was about to restart leaves it running: its pending start is not lost with the
 * operation.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { signal } from "../support/processes.ts";

/** One for all tests, each with its own app, so that no earlier loss affects the delay. */
const emptyDaemon = sharedDaemon();

/** Other tests keep the CPUs busy. */
const deadlineMs = 60_000;

/** Each loss delays its restart further: after these there is time to start an operation before it. */
const losses = 4;

async function installApp(daemon: TestDaemon, dir: string): Promise<void> {
  const apps = daemon.client(AppService);
  await writePackage(dir, await freePort(), { version: "1.0.0" });
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
}

/** Makes svc lose the app, whose restart is then some seconds away. */
async function loseApp(daemon: TestDaemon): Promise<void> {
  const apps = daemon.client(AppService);
  for (let loss = 1; loss <= losses; loss++) {
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "web" })).state, "RUNNING"),
      deadlineMs,
    );
    const text = await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8");
    const { supervisor, app } = JSON.parse(text) as Record<"supervisor" | "app", { pid: number }>;
    signal(supervisor.pid, "SIGKILL");
    signal(app.pid, "SIGKILL");
    await eventually(
      async () => assert.notEqual((await apps.getApp({ id: "web" })).state, "RUNNING"),
      deadlineMs,
    );
  }
}

const works: Record<string, { readonly version: string; readonly isRefused?: boolean; newer: boolean }> = {
  "an upgrade": { version: "2.0.0", newer: true },
  "an upgrade that fails": { version: "1.0.0", newer: false, isRefused: true },
};

for (const [name, { version, newer, isRefused = false }] of Object.entries(works)) {
  test(`${name} of a lost app makes it run again`, async (t) => {
    t.timeout(180_000);
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "package");
    await installApp(daemon, dir);
    await loseApp(daemon);
    const files = { "svc.yaml": "id: web\nname: Not a package\n" };
    await writePackage(dir, await freePort(), newer ? { version } : { version: "2.0.0", files });
    const error = await errorOf(apps.upgradeApp({ id: "web" })).catch(() => undefined);
    t.is(error !== undefined, isRefused);
    await eventually(async () => {
      const app = await apps.getApp({ id: "web" });
      assert.deepEqual(
        { state: app.state, enabled: app.enabled, version: app.version },
        { state: "RUNNING", enabled: true, version },
      );
    }, deadlineMs);
    await apps.removeApp({ id: "web" });
  });
}

test("a restore of a lost app makes it run again", async (t) => {
  t.timeout(180_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const dir = join(daemon.dir, "package");
  await installApp(daemon, dir);
  const { results } = await backups.createBackup({ appId: "web" });
  await loseApp(daemon);
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  t.like(await backups.restoreBackup(ref), { appId: "web", restarted: true });
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", enabled: true });
  await apps.removeApp({ id: "web" });
});
