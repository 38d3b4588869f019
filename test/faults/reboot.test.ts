/**
 * After a reboot apps have their desired state, in whatever order the host's processes exited. Each table prints its
 * coverage: each order of each runtime, with either boot ID in turn; with SVC_LONG=1 with both.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { makeBootId, type BootId } from "../support/boot-id.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine, type TestEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { noneLeft, processesIn, signal } from "../support/processes.ts";

type Apps = Client<typeof AppService>;

/** Everything is slow on a booting host. */
const deadlineMs = 60_000;
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
    await noneLeft(this.#daemon.storeDir, deadlineMs, living);
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
  t.true(lines.some(({ text }) => text === "it exited with code 3; its restart policy is never"));
  await apps.removeApp({ id: "web" });
});
