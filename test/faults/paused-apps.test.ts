/** A daemon that is killed while an app is frozen for its backup: nothing stays paused. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { readProcess } from "../../src/lib/process-table.mjs";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { processesIn } from "../support/processes.ts";

/** Of what is read while the app stands still. */
const bulkBytes = 192 << 20;
const ticking = 'while :; do echo >> "$DIR/ticks"; sleep 0.02; done';
const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/shell:1");
});

async function install(daemon: TestDaemon, runtime: string): Promise<string> {
  const dir = join(daemon.dir, "package");
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "svc.yaml"), `id: ticks\nname: Ticks\nversion: "1.0.0"\n${runtime}\n`);
  const apps = daemon.client(AppService);
  const { directory } = await apps.installApp({ spec: dir, licenseAck: true });
  await writeFile(join(directory, "data/bulk"), randomBytes(bulkBytes));
  await apps.startApp({ id: "ticks" });
  return directory;
}

async function ticks(directory: string): Promise<number> {
  return (await stat(join(directory, "data/ticks"))).size;
}

/** Until it is seen to be paused; the backup goes on. */
async function pausedBackup(daemon: TestDaemon) {
  const backup = daemon.client(BackupService).createBackup({ appId: "ticks", mode: "pause" });
  const settled = backup.catch(() => undefined);
  await eventually(async () => {
    const app = await daemon.client(AppService).getApp({ id: "ticks" });
    assert.equal(app.stateReason, "it is paused");
    assert.equal(app.state, "RUNNING");
    assert.notEqual(app.health, "unhealthy");
  }, 30_000);
  return { backup, settled };
}

async function requireGoesOn(directory: string): Promise<void> {
  const before = await ticks(directory);
  await eventually(async () => assert.ok((await ticks(directory)) > before), 30_000);
}

/** A backup in which the app stands still, one that is refused meanwhile, and one that fails. */
async function live(t: ExecutionContext, daemon: TestDaemon, directory: string): Promise<void> {
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const { backup } = await pausedBackup(daemon);
  const frozenAt = await ticks(directory);
  t.like(await errorOf(apps.stopApp({ id: "ticks" })), { reason: "app_busy" });
  t.is(await ticks(directory), frozenAt);
  t.not((await apps.getApp({ id: "ticks" })).health, "unhealthy");
  const { results, warnings } = await backup;
  t.deepEqual(warnings, []);
  const ref = { appId: "ticks", storage: "local", name: results[0]?.name ?? "" };
  t.is((await backups.getBackup(ref)).mode, "pause");
  const listed = await backups.browseBackup({ ...ref, path: "data" });
  t.is(Number(listed.entries.find(({ path }) => path === "data/ticks")?.sizeBytes), frozenAt);
  t.like(await apps.getApp({ id: "ticks" }), { state: "RUNNING", stateReason: "" });
  await requireGoesOn(directory);

  const canceled = new AbortController();
  const doomed = backups.createBackup({ appId: "ticks", mode: "pause" }, { signal: canceled.signal });
  await eventually(async () => {
    assert.equal((await apps.getApp({ id: "ticks" })).stateReason, "it is paused");
  }, 30_000);
  canceled.abort();
  await errorOf(doomed);
  await requireGoesOn(directory);
  await eventually(async () => assert.equal((await apps.getApp({ id: "ticks" })).stateReason, ""), 30_000);
}

test("processes stand still while they are backed up, and go on when the daemon is killed", async (t) => {
  await using daemon = await startDaemon();
  const script = JSON.stringify(`(setsid sh -c 'while :; do sleep 0.02; done' &) ; ${ticking}`);
  const directory = await install(daemon, `process: { exec: [sh, -c, ${script}], env: { DIR: "\${data}" } }`);
  await live(t, daemon, directory);

  const { settled } = await pausedBackup(daemon);
  await daemon.kill();
  await settled;
  await requireGoesOn(directory);
  const states = (await processesIn(directory)).flatMap((pid) => readProcess(pid)?.state ?? []);
  t.true(states.length >= 2 && !states.includes("T"), states.join());
  await daemon.restart();
  const apps = daemon.client(AppService);
  await eventually(async () => assert.equal((await apps.getApp({ id: "ticks" })).state, "RUNNING"));
  t.is((await apps.getApp({ id: "ticks" })).stateReason, "");
  await apps.stopApp({ id: "ticks" });
});

dockerTest(
  `a container stands still while it is backed up, and goes on with the next daemon${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await using daemon = await startDaemon({ config: engine.config });
    const port = await freePort();
    const script = `echo ok > /tmp/ok; httpd -p 8080 -h /tmp; ${ticking}`;
    const directory = await install(
      daemon,
      `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}], env: { DIR: "\${data}" } }
ports: [{ name: http, default: ${port}, container_port: 8080 }]
health: { http: { port: http, path: /ok }, interval: 100ms, timeout: 100ms, retries: 1, start_period: 1m }`,
    );
    await live(t, daemon, directory);
    const { settled } = await pausedBackup(daemon);
    await daemon.kill();
    await settled;
    const paused = async (): Promise<boolean[]> => {
      const all = (await engine.request("GET", "/containers/json?all=1")).expect(200) as {
        State: string;
        Labels: Record<string, string>;
      }[];
      return all.filter(({ Labels }) => Labels["svc.app"] === "ticks").map(({ State }) => State === "paused");
    };
    t.deepEqual(await paused(), [true], "the engine does not know");
    await daemon.restart();
    await eventually(async () => assert.deepEqual(await paused(), [false]), 30_000);
    await requireGoesOn(directory);
    const apps = daemon.client(AppService);
    await eventually(async () => {
      assert.equal((await apps.getApp({ id: "ticks" })).stateReason, "");
    }, 30_000);
    await apps.stopApp({ id: "ticks" });
    await apps.removeApp({ id: "ticks" });
  },
);
