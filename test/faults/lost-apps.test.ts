/** Apps that lost their process, port, directory or supervisor, and reboots of the host. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { type BootId, makeBootId } from "../support/boot-id.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { type TestDaemon, isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { type TestEngine, startEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles, writePackage } from "../support/packages.ts";
import { untilNoneLeft, processesIn, signal } from "../support/processes.ts";

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

// An app whose port is in use keeps its desired state, even if the engine hangs while svc checks whether the app
// itself
// uses the port.

const script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
const manifest = `id: web
name: Web
version: "1.0.0"
settings: { type: object, properties: { port: { type: integer } }, required: [port] }
ports: [{ name: http, setting: port, container_port: 8080 }]
docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }
`;

/** Milliseconds until a failed start is retried. When the engine is back, the app starts without this delay. */
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
      await untilNoneLeft(daemon.storeDir, deadlineMs, beforePids);

      // A user's request has precedence.
      const again = JSON.parse(await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8")) as {
        supervisor: { pid: number };
      };
      signal(again.supervisor.pid, name);
      await eventually(() => apps.stopApp({ id: "web" }), deadlineMs);
      t.like(await apps.getApp({ id: "web" }), { state: "STOPPED", enabled: false });
      await untilNoneLeft(daemon.storeDir, deadlineMs);
    });
  }
}

// After a reboot apps have their desired state, in whatever order the host's processes exited. Each table prints
// its coverage: each order of each runtime, with either boot ID in turn; with SVC_LONG=1 with both.

type Apps = Client<typeof AppService>;

/** Everything is slow on a booting host. */
const orders = {
  "the daemon first": ["daemon", "supervisors", "apps"],
  "supervisors first": ["supervisors", "apps", "daemon"],
  "apps first": ["apps", "supervisors", "daemon"],
  "all at once": [],
} as const;
type Part = "daemon" | "supervisors" | "apps";
const boots = ["the same boot id", "a new boot id"] as const;
const runtimes = ["process", "docker", "compose"];
const isLong = process.env["SVC_LONG"] !== undefined;

/** The boots that are combined with an order. */
function bootsOf(runtime: string, order: string): readonly (typeof boots)[number][] {
  const at = runtimes.indexOf(runtime) + Object.keys(orders).indexOf(order);
  return isLong ? boots : boots.slice(at % 2, (at % 2) + 1);
}

/** Processes that exit with the host, each stopped as a shutdown stops it. */
interface Host {
  end(part: Part): Promise<void>;
  /** The remaining ones are killed. */
  powerOff(): Promise<void>;
  powerOn(boot: (typeof boots)[number]): Promise<void>;
}

async function goThroughAll(t: ExecutionContext, runtime: string, host: Host, check: () => Promise<void>) {
  for (const [order, parts] of Object.entries(orders)) {
    for (const boot of bootsOf(runtime, order)) {
      if (parts.length === 0) {
        await Promise.all((["daemon", "supervisors", "apps"] as const).map((part) => host.end(part)));
      }
      for (const part of parts) await host.end(part);
      await host.powerOff();
      await host.powerOn(boot);
      const begunMs = performance.now();
      await eventually(check, deadlineMs).catch((error: unknown) => {
        throw new Error(`${runtime}, ${order}, ${boot}`, { cause: error });
      });
      t.log(
        `${runtime}, ${order}, ${boot}: desired state after ${Math.round(performance.now() - begunMs)} ms`,
      );
    }
  }
  t.pass();
}

/** Exits with 0 on a stop, which does not mean that it should not run. */
const polite = `
import { createServer } from "node:http";
process.on("SIGTERM", () => process.exit(0));
createServer((request, response) => response.end("here")).listen(Number(process.env.PORT), "127.0.0.1");
`;

class ProcessHost implements Host {
  readonly #daemon: TestDaemon;
  readonly #bootId: BootId;
  readonly #ids: readonly string[];

  constructor(daemon: TestDaemon, bootId: BootId, ids: readonly string[]) {
    this.#daemon = daemon;
    this.#bootId = bootId;
    this.#ids = ids;
  }

  async end(part: Part): Promise<void> {
    if (part === "daemon") return this.#daemon.stop();
    const pids = await Promise.all(this.#ids.map((id) => this.#pid(id, part)));
    const living = pids.filter((pid) => pid !== undefined);
    for (const pid of living) signal(pid, "SIGTERM");
    await untilNoneLeft(this.#daemon.storeDir, deadlineMs, living);
  }

  async #pid(id: string, part: "supervisors" | "apps"): Promise<number | undefined> {
    const text = await readFile(join(this.#daemon.storeDir, "run", id, "state.json"), "utf8").catch(
      () => "{}",
    );
    const state = JSON.parse(text) as { supervisor?: { pid: number }; app?: { pid: number } | null };
    return part === "supervisors" ? state.supervisor?.pid : state.app?.pid;
  }

  async powerOff(): Promise<void> {
    await this.#daemon.stop();
    await eventually(async () => {
      const left = processesIn(this.#daemon.storeDir);
      for (const pid of left) signal(pid, "SIGKILL");
      assert.deepEqual(left, []);
    }, deadlineMs);
  }

  async powerOn(boot: (typeof boots)[number]): Promise<void> {
    if (boot === "a new boot id") await this.#bootId.renew();
    await this.#daemon.restart();
  }
}

(isRoot ? test : test.skip)(
  `apps whose desired state is running run again after any order of exits: process${needsRoot}`,
  async (t) => {
    t.timeout(20 * 60_000);
    await using bootId = await makeBootId();
    await using daemon = await startDaemon({ launcher: bootId.launcher });
    const apps = daemon.client(AppService);
    const ports: Record<string, number> = {};
    for (const [id, server] of Object.entries({ polite, plain: undefined, idle: polite })) {
      const port = (ports[id] = await freePort());
      const files = server === undefined ? {} : { "server.mjs": server };
      await writePackage(join(daemon.dir, id), port, { id, files });
      await apps.installApp({ spec: join(daemon.dir, id) });
      await apps.startApp({ id });
    }
    await apps.stopApp({ id: "idle" });
    const check = async (): Promise<void> => {
      await expectStates(apps, { polite: "RUNNING", plain: "RUNNING", idle: "STOPPED" });
      for (const id of ["polite", "plain"]) {
        assert.equal((await fetch(`http://127.0.0.1:${ports[id] ?? 0}`)).status, 200);
      }
    };
    await eventually(check, deadlineMs);
    await goThroughAll(t, "process", new ProcessHost(daemon, bootId, ["polite", "plain"]), check);
  },
);

async function expectStates(apps: Apps, expected: Record<string, string>): Promise<void> {
  const listed = (await apps.listApps({})).apps;
  assert.deepEqual(Object.fromEntries(listed.map(({ id, state }) => [id, state])), expected);
  for (const { id, enabled } of listed) assert.equal(enabled, expected[id] === "RUNNING", id);
}

/** The engine supervises containers. A shutdown stops it, and a boot may start the daemon before it. */
class ContainerHost implements Host {
  readonly #daemon: TestDaemon;
  readonly #engine: TestEngine;
  #isEngineUp = true;

  constructor(daemon: TestDaemon, engine: TestEngine) {
    this.#daemon = daemon;
    this.#engine = engine;
  }

  async end(part: Part): Promise<void> {
    if (part === "daemon") return this.#daemon.stop();
    if (part === "supervisors") return this.#stopEngine();
    if (!this.#isEngineUp) return;
    const all = (await this.#engine.request("GET", "/containers/json")).expect(200);
    for (const { Id } of all as { Id: string }[]) {
      await this.#engine.request("POST", `/containers/${Id}/kill?signal=TERM`).catch(() => undefined);
    }
  }

  async #stopEngine(): Promise<void> {
    if (!this.#isEngineUp) return;
    this.#isEngineUp = false;
    await this.#engine.stop();
  }

  async powerOff(): Promise<void> {
    await this.#stopEngine();
    await this.#daemon.stop();
  }

  async powerOn(boot: (typeof boots)[number]): Promise<void> {
    const starts = [() => this.#engine.start(), () => this.#daemon.restart()];
    for (const start of boot === "a new boot id" ? starts.reverse() : starts) await start();
    this.#isEngineUp = true;
  }
}

const image = "svc/polite:1";
const manifests = {
  docker: (id: string) => `docker: { image: "${image}" }\nid: ${id}\n`,
  compose: (id: string) => `compose: { file: compose.yaml }\nid: ${id}\n`,
};

for (const [runtime, manifestOf] of Object.entries(manifests)) {
  dockerTest(
    `apps whose desired state is running run again after any order of exits: ${runtime}${needsDocker}`,
    async (t) => {
      t.timeout(20 * 60_000);
      await using engine = await startEngine();
      await engine.images.build(image, {
        cmd: ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
      });
      await using daemon = await startDaemon({ config: engine.config });
      const apps = daemon.client(AppService);
      for (const id of ["polite", "idle"]) {
        await writePackage(join(daemon.dir, id), 0, {
          files: {
            "svc.yaml": `${manifestOf(id)}name: ${id}\nversion: "1"\n`,
            "compose.yaml": `services: { one: { image: "${image}", restart: on-failure }, two: { image: "${image}" } }\n`,
          },
        });
        await apps.installApp({ spec: join(daemon.dir, id) });
        await apps.startApp({ id });
      }
      await apps.stopApp({ id: "idle" });
      const check = async (): Promise<void> => {
        await expectStates(apps, { polite: "RUNNING", idle: "STOPPED" });
        const running = (await engine.request("GET", "/containers/json")).expect(200) as unknown[];
        assert.equal(running.length, runtime === "compose" ? 2 : 1);
      };
      await eventually(check, deadlineMs);
      await goThroughAll(t, runtime, new ContainerHost(daemon, engine), check);
    },
  );
}

test("an app that crashed while no daemon ran starts again, and its log shows its exit", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port, { manifest: "restart: { policy: never }\n" });
  await apps.installApp({ spec: join(daemon.dir, "package") });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  await daemon.kill();
  await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
  await eventually(async () => {
    const state = await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8");
    assert.ok((JSON.parse(state) as { final: boolean }).final);
  });
  await daemon.restart();
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).state, "RUNNING"));
  const { lines } = await apps.getAppLogs({ id: "web" });
  t.true(lines.some(({ text }) => text === "the program exited with code 3; the restart policy is never"));
  await apps.removeApp({ id: "web" });
});
