/**
 * Alerts of a real daemon: a file system that becomes full, and an app that crashes, sent to a command and to a server.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const deadlineMs = 60_000;
const rootTest = isRoot ? test : test.skip;

rootTest(`a full file system and its recovery are sent to a command${needsRoot}`, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-alert-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [disk, told] = [join(dir, "disk"), join(dir, "told")];
  await mkdir(disk);
  const config = `
[metrics]
interval_secs = 1
[[alerts]]
name = "disk"
when = "filesystem"
path = "${disk}"
above_percent = 80
for_secs = 1
command = "echo $SVC_ALERT $SVC_ALERT_STATE: $SVC_ALERT_MESSAGE >> ${told}"
`;
  // Only the daemon sees it.
  const mount = `mount -t tmpfs -o size=8m tmpfs ${disk} && exec "$@"`;
  await using daemon = await startDaemon({
    config,
    launcher: ["unshare", "--mount", "sh", "-c", mount, "sh"],
  });
  const file = `/proc/${daemon.pid}/root${disk}/large`;
  const status = async () => (await daemon.client(DaemonService).getStatus({})).alerts;
  t.deepEqual(await status(), []);
  await writeFile(file, Buffer.alloc(7.5 * 1024 * 1024));
  const said = async () => (await readFile(told, "utf8")).trim().split("\n");
  await eventually(async () => assert.equal((await said()).length, 1), deadlineMs);
  const [alert] = await status();
  t.like(alert, { name: "disk", subject: disk });
  t.regex(alert?.message ?? "", /is 9\d\.\d % full$/);
  // No alert is sent twice, also not by the next daemon: its disk is a different one, with space.
  await rm(file);
  await eventually(async () => assert.equal((await said()).length, 2), deadlineMs);
  t.deepEqual(
    (await said()).map((line) => line.replace(/:.*/, "")),
    ["disk firing", "disk resolved"],
  );
  t.deepEqual(await status(), []);
});

test("an overdue backup and its completion are sent to a command", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-alert-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const told = join(dir, "told");
  await using daemon = await startDaemon({
    config: `
[metrics]
interval_secs = 1
[[alerts]]
name = "old"
when = "backup_overdue"
for_secs = 0
command = "echo $SVC_ALERT $SVC_ALERT_STATE: $SVC_ALERT_MESSAGE >> ${told}"
`,
  });
  await writePackage(join(daemon.dir, "web"), await freePort());
  await daemon.client(AppService).installApp({ spec: join(daemon.dir, "web") });
  const backups = daemon.client(BackupService);
  // Half a day from now, so that it does not fire during the test.
  const hour = (new Date().getHours() + 12) % 24;
  await backups.setBackupPolicy({ appId: "web", trigger: `${String(hour).padStart(2, "0")}:30`, keep: 2 });
  const status = async () => (await daemon.client(DaemonService).getStatus({})).alerts;
  t.deepEqual(await status(), []);

  await daemon.kill();
  const store = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  store.prepare("UPDATE backup_policies SET set_at = set_at - 2 * 24 * 3600 * 1000").run();
  store.close();
  await daemon.restart();
  const said = async () => (await readFile(told, "utf8")).trim().split("\n");
  await eventually(async () => assert.equal((await said()).length, 1), deadlineMs);
  const [alert] = await status();
  t.like(alert, { name: "old", subject: "web" });
  t.like((await daemon.client(DaemonService).getStatus({})).apps, { backupsOverdue: 1 });

  await backups.createBackup({ appId: "web" });
  await eventually(async () => assert.equal((await said()).length, 2), deadlineMs);
  t.deepEqual(
    (await said()).map((line) => line.replace(/:.*/, "")),
    ["old firing", "old resolved"],
  );
  t.deepEqual(await status(), []);
});

test("an app's crash is sent to a server once, also over a restart, and is visible to users who may see the app", async (t) => {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => {
      bodies.push(body);
      response.end();
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const config = `
[metrics]
interval_secs = 1
[[alerts]]
name = "crashed"
when = "app_crashed"
url = "http://127.0.0.1:${port}/"
`;
  await using daemon = await startDaemon({ config });
  const dir = join(daemon.dir, "web");
  const webPort = await freePort();
  await writePackage(dir, webPort, { manifest: "restart: { policy: never }" });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${webPort}/`), deadlineMs);
  await fetch(`http://127.0.0.1:${webPort}/exit`).catch(() => undefined);
  await eventually(() => assert.equal(bodies.length, 1), deadlineMs);
  t.deepEqual(JSON.parse(bodies[0] ?? ""), {
    alert: "crashed",
    state: "firing",
    subjects: [{ subject: "web", message: 'app "web" is CRASHED' }],
  });
  const alerts = async () => (await daemon.client(DaemonService, "rest").getStatus({})).alerts;
  t.deepEqual(
    (await alerts()).map(({ name, subject }) => [name, subject]),
    [["crashed", "web"]],
  );
  if (isRoot) {
    await using other = await daemon.as(2);
    t.deepEqual(
      (await other.client(DaemonService).getStatus({})).alerts,
      [],
      "another user's app is not named",
    );
  }
  await daemon.restart();
  await apps.stopApp({ id: "web" });
  await eventually(() => assert.equal(bodies.length, 2), deadlineMs);
  t.like(JSON.parse(bodies[1] ?? ""), { alert: "crashed", state: "resolved" });
  t.deepEqual(await alerts(), []);
});
