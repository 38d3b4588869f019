/** Apps that lost their process, port, directory or supervisor run again. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { type TestDaemon, startDaemon, isRoot } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage, writeFiles } from "../support/packages.ts";
import { signal, noneLeft, processesIn } from "../support/processes.ts";

// An operation on an app that svc was about to restart leaves it running: its pending start is not lost with the
// operation.

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

// An app whose port is in use keeps its desired state, even if the engine hangs while svc checks whether the app itself
// uses the port.

const script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
const manifest = `id: web
name: Web
version: "1.0.0"
settings: { type: object, properties: { port: { type: integer } }, required: [port] }
ports: [{ name: http, setting: port, container_port: 8080 }]
docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }
`;

/** The delay of the next retry of a start that has failed again: the engine's return does not wait for it. */
const nextTryMs = 12_000;
/** Above the duration of a start on a busy host, and below that delay. */
const startMs = 10_000;

dockerTest(`an app runs as soon as its port is free and its engine is back${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writeFiles(join(daemon.dir, "web"), { "svc.yaml": manifest });
  await apps.installApp({ spec: join(daemon.dir, "web"), settings: { port } });
  await apps.startApp({ id: "web" });
  await daemon.kill();
  const containers = (await engine.request("GET", "/containers/json")).expect(200) as { Id: string }[];
  for (const { Id } of containers) (await engine.request("POST", `/containers/${Id}/kill`)).expect(204);
  const stranger = createServer().listen(port);
  await once(stranger, "listening");
  try {
    await daemon.restart();
    const why = `port ${port} is in use by process ${process.pid} (node); use another one: svc `;
    await eventually(async () => {
      const { state, stateReason } = await apps.getApp({ id: "web" });
      assert.equal(state, "FAILED");
      assert.ok(stateReason.startsWith(why), stateReason);
    }, 60_000);
    await engine.pause();
    await eventually(async () => {
      const { nextRestartAt } = await apps.getApp({ id: "web" });
      assert.ok(nextRestartAt !== undefined && timestampMs(nextRestartAt) - Date.now() > nextTryMs);
    }, 60_000);
  } finally {
    stranger.close();
  }
  engine.resume();
  const backMs = performance.now();
  await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).state, "RUNNING"), 60_000);
  const tookMs = performance.now() - backMs;
  t.true(tookMs < startMs, `${Math.round(tookMs)} ms`);
});

// An app whose directory was removed externally: operations on its files report it, and a backup restores everything.

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

// A supervisor that exits without svc is replaced together with its app: no app runs without a supervisor.

const promisedMs = 5_000;

/** Leaves its session twice, so that only the cookie identifies it. */
const server = `
import { createServer } from "node:http";
import { spawn } from "node:child_process";
spawn("sh", ["-c", "setsid sleep 100000 & exit"], { detached: true, stdio: "ignore" });
createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), "127.0.0.1");
`;

const whiles: Record<string, (daemon: TestDaemon, strike: () => void) => Promise<void>> = {
  "while the daemon watches": async (_daemon, strike) => {
    strike();
    return Promise.resolve();
  },
  "while no daemon runs": async (daemon, strike) => {
    await daemon.kill();
    strike();
    await daemon.restart();
  },
  "while the daemon is paused": async (daemon, strike) => {
    signal(daemon.pid, "SIGSTOP");
    strike();
    signal(daemon.pid, "SIGCONT");
    return Promise.resolve();
  },
};

for (const name of ["SIGKILL", "SIGTERM"] as const) {
  for (const [when, around] of Object.entries(whiles)) {
    test(`a supervisor that exits by ${name} ${when} is replaced`, async (t) => {
      const daemon = await emptyDaemon();
      const apps = daemon.client(AppService);
      const port = await freePort();
      await writePackage(join(daemon.dir, "package"), port, { files: { "server.mjs": server } });
      await apps.installApp({ spec: join(daemon.dir, "package") });
      await apps.startApp({ id: "web" });
      const answer = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}`)).text();
      // The current duration of a start on this host.
      const restartedMs = performance.now();
      await apps.restartApp({ id: "web" });
      const before = await eventually(answer);
      const busyMs = performance.now() - restartedMs;
      const beforePids = processesIn(daemon.storeDir);
      const state = await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8");
      const { supervisor } = JSON.parse(state) as { supervisor: { pid: number } };

      await around(daemon, () => signal(supervisor.pid, name));
      // The time from which a daemon can see it.
      const begunMs = performance.now();
      await eventually(async () => {
        assert.notEqual(await answer(), before);
        const { state: now, enabled } = await apps.getApp({ id: "web" });
        assert.deepEqual({ now, enabled }, { now: "RUNNING", enabled: true });
      }, deadlineMs);
      const tookMs = Math.round(performance.now() - begunMs);
      t.log(`replaced after ${tookMs} ms`);
      t.true(tookMs < promisedMs + 3 * busyMs, `${tookMs} ms, and a start takes ${Math.round(busyMs)} ms`);
      await noneLeft(daemon.storeDir, deadlineMs, beforePids);

      // A user's request has precedence.
      const again = JSON.parse(await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8")) as {
        supervisor: { pid: number };
      };
      signal(again.supervisor.pid, name);
      await eventually(() => apps.stopApp({ id: "web" }), deadlineMs);
      t.like(await apps.getApp({ id: "web" }), { state: "STOPPED", enabled: false });
      await noneLeft(daemon.storeDir, deadlineMs);
    });
  }
}
