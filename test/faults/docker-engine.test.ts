/** The engine hangs, is killed, returns under load, or sends a storm of events: everything else continues. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { type TestDaemon, startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker, type TestEngine, startEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage, projectFiles, writeFiles } from "../support/packages.ts";
import { sendRest } from "../support/rest-transport.ts";

// The engine hangs, is killed and returns under load: DockerService reports it in time, and everything else continues.

type Docker = Client<typeof DockerService>;

/** Short calls time out after 10 s; the rest is for a busy host. */
const deadlineMs = 15_000;
/** The maximum age of a list. */
const staleMs = 1_000;
/** The time after its return within which everything must respond again. */
const returnMs = 5_000;

const faults: Record<
  string,
  { strike: (engine: TestEngine) => Promise<void>; heal: (engine: TestEngine) => Promise<void> }
> = {
  "that hangs": {
    strike: async (engine) => {
      await engine.pause();
    },
    heal: async (engine) => {
      engine.resume();
    },
  },
  "that was killed": { strike: (engine) => engine.kill(), heal: (engine) => engine.start() },
  "that was stopped": { strike: (engine) => engine.stop(), heal: (engine) => engine.start() },
};

/** Every method that does not change what the tests check. */
function everyCall(client: Docker): Record<string, () => Promise<unknown> | AsyncIterable<unknown>> {
  return {
    containers: () => client.listContainers({ all: true }),
    "containers with sizes": () => client.listContainers({ all: true, size: true }),
    stats: () => client.listContainerStats({}),
    images: () => client.listImages({}),
    volumes: () => client.listVolumes({}),
    networks: () => client.listNetworks({}),
    "disk usage": () => client.getDockerDiskUsage({}),
    prune: () => client.pruneDocker({ target: "images", dryRun: true, danglingOnly: true }),
    control: () =>
      client.controlContainer({ target: { case: "container", value: "steady" }, action: "start" }),
    "control of a project": () =>
      client.controlContainer({ target: { case: "composeProject", value: "steady" }, action: "start" }),
    inspect: () => client.inspectContainer({ container: "steady" }),
    logs: () => client.getContainerLogs({ container: "steady" }),
    "followed logs": () => client.streamContainerLogs({ container: "steady" }),
    events: () => client.streamDockerEvents({}),
  };
}
const streams = new Set(["followed logs", "events"]);

const engineNow = sharedEngine();
// It follows the engine through all faults, from one test to the next.
const emptyDaemon = sharedDaemon(() => ({ config: whyNoDocker === undefined ? engineNow().config : "" }));

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  await engineNow().images.build("svc/app:1");
  await engineNow().run("steady", {
    Image: "svc/app:1",
    Labels: { "com.docker.compose.project": "steady" },
    HostConfig: { RestartPolicy: { Name: "always" } },
  });
});

for (const [name, { strike, heal }] of Object.entries(faults)) {
  dockerTest(
    `an engine that ${name} is reported as unavailable in time, while everything else continues${needsDocker}`,
    async (t) => {
      const engine = engineNow();
      const daemon = await emptyDaemon();
      const apps = daemon.client(AppService);
      await writePackage(join(daemon.dir, "package"), await freePort(), { id: "hello" });
      await apps.installApp({ spec: join(daemon.dir, "package") });
      await apps.startApp({ id: "hello" });
      const client = daemon.client(DockerService, "grpc");
      await client.listContainers({ all: true });
      await using load = new Load(daemon);
      await wait(300);
      await strike(engine);
      // Until then, a list may be the previous one.
      await wait(staleMs);

      const outcomes = Object.entries(everyCall(client)).map(async ([what, call]) => {
        const startedMs = performance.now();
        const error = await errorOf(call());
        return { what, error, tookMs: performance.now() - startedMs };
      });
      const rest = sendRest({ socketPath: daemon.socketPath }, "GET", "/v1/docker/networks");
      // At the same time a process app stops and starts.
      t.is((await apps.stopApp({ id: "hello" })).state, "STOPPED");
      t.is((await apps.startApp({ id: "hello" })).state, "RUNNING");
      for (const { what, error, tookMs } of await Promise.all(outcomes)) {
        t.like(error, { code: "Unavailable", reason: "unavailable" }, `${what}: ${error.message}`);
        t.regex(error.message, /^the container engine [^\n]+$/, what);
        t.true(tookMs < deadlineMs, `${what}: ${tookMs} ms`);
      }
      const { status, text } = await rest;
      t.is(status, 503, text);

      await heal(engine);
      await expectAnswers(t, client);
      const { latenciesMs, failures } = await load.end();
      t.deepEqual(failures, []);
      const p99Ms = latenciesMs[Math.floor(latenciesMs.length * 0.99)] ?? Infinity;
      t.log(
        `${latenciesMs.length} calls in parallel, p50 ${median(latenciesMs).toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`,
      );
      t.true(p99Ms < 1_000, `p99 ${p99Ms} ms`);
      await apps.removeApp({ id: "hello" });
    },
  );
}

dockerTest(`an engine that restarts under load loses no call permanently${needsDocker}`, async (t) => {
  const engine = engineNow();
  const daemon = await emptyDaemon();
  const client = daemon.client(DockerService, "grpc");
  const ended = new AbortController();
  const seen = { answers: 0, unavailable: 0, others: [] as string[], slowestMs: 0 };
  const calls = Object.entries(everyCall(client)).filter(([what]) => !streams.has(what));
  const loads = calls.map(([what, call]) => keepCalling(what, call));
  async function keepCalling(
    what: string,
    call: () => Promise<unknown> | AsyncIterable<unknown>,
  ): Promise<void> {
    while (!ended.signal.aborted) {
      const startedMs = performance.now();
      const error = await errorOf(call()).catch(() => undefined);
      seen.slowestMs = Math.max(seen.slowestMs, performance.now() - startedMs);
      if (error === undefined) seen.answers++;
      else if (error.reason === "unavailable") seen.unavailable++;
      else seen.others.push(`${what}: ${error.reason} ${error.message}`);
      await wait(100);
    }
  }
  for (let round = 0; round < 3; round++) {
    await wait(500);
    await (round === 1 ? engine.kill().then(() => engine.start()) : engine.restart());
    await expectAnswers(t, client);
  }
  ended.abort();
  await Promise.all(loads);
  t.log(JSON.stringify(seen));
  t.deepEqual(seen.others, []);
  t.true(seen.answers > 0);
  t.true(seen.slowestMs < deadlineMs, `${seen.slowestMs} ms`);
});

/** Every method responds again within 5 s of the engine's return. */
async function expectAnswers(t: ExecutionContext, client: Docker): Promise<void> {
  const startedMs = performance.now();
  const waits = Object.entries(everyCall(client))
    .filter(([what]) => !streams.has(what))
    .map(async ([what, call]) => {
      await eventually(call as () => Promise<unknown>, returnMs);
      return { what, tookMs: Math.round(performance.now() - startedMs) };
    });
  const [slowest] = (await Promise.all(waits)).sort((a, b) => b.tookMs - a.tookMs);
  t.log(`all respond ${slowest?.tookMs ?? 0} ms after the engine's return, ${slowest?.what ?? ""} last`);
  t.true((slowest?.tookMs ?? Infinity) < returnMs);
  const { containers } = await client.listContainers({ all: true });
  t.true(containers.some(({ name }) => name === "steady"));
}

/** Constant calls about everything except the engine. */
class Load implements AsyncDisposable {
  readonly #ended = new AbortController();
  readonly #latenciesMs: number[] = [];
  readonly #failures: string[] = [];
  readonly #going: Promise<unknown>;

  constructor(daemon: TestDaemon) {
    const status = daemon.client(DaemonService, "rest");
    const apps = daemon.client(AppService, "connect");
    this.#going = Promise.all([
      this.#repeat(() => status.getStatus({})),
      this.#repeat(() => apps.listApps({})),
      this.#repeat(() => apps.getApp({ id: "hello" })),
    ]);
  }

  async #repeat(call: () => Promise<unknown>): Promise<void> {
    while (!this.#ended.signal.aborted) {
      const startedMs = performance.now();
      await call().catch((error: unknown) => this.#failures.push(String(error)));
      this.#latenciesMs.push(performance.now() - startedMs);
      await wait(25);
    }
  }

  /** Sorted. */
  async end(): Promise<{ latenciesMs: readonly number[]; failures: readonly string[] }> {
    this.#ended.abort();
    await this.#going;
    return { latenciesMs: this.#latenciesMs.toSorted((a, b) => a - b), failures: this.#failures };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}

function median(sorted: readonly number[]): number {
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

// An engine that hangs: every call to svc returns in time, and only the engine's own data is missing.

type Apps = Client<typeof AppService>;
type Call = () => Promise<unknown> | AsyncIterable<unknown>;

/** The deadline of each call, and the margin of a busy host. */
const promisedMs = 3_000;
const badMomentMs = 2_500;
const forever = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

async function installAll(daemon: TestDaemon): Promise<void> {
  const apps = daemon.client(AppService);
  await writePackage(join(daemon.dir, "hello"), await freePort(), { id: "hello" });
  const box = `docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}] }`;
  await writeFiles(join(daemon.dir, "box"), { "svc.yaml": `id: box\nname: Box\nversion: "1.0.0"\n${box}\n` });
  const stack = { id: "stack", script: forever, volumes: { state: "/state" } };
  await writeFiles(join(daemon.dir, "stack"), projectFiles(stack));
  for (const id of ["hello", "box", "stack"]) {
    await apps.installApp({ spec: join(daemon.dir, id) });
    await apps.startApp({ id });
  }
}

/** Calls about all apps or none: they succeed. */
function ofAll(daemon: TestDaemon): Record<string, Call> {
  const apps = daemon.client(AppService, "grpc");
  return {
    listApps: () => apps.listApps({}),
    getDiskReport: () => apps.getDiskReport({}),
    getPortReport: () => apps.getPortReport({}),
    getAppStats: () => apps.getAppStats({}),
    listUpdates: () => apps.listUpdates({}),
    listStatus: () => daemon.client(DaemonService).getStatus({}),
    listProcesses: () => daemon.client(ProcessService).listProcesses({}),
    listListeningPorts: () => daemon.client(MonitorService).listListeningPorts({}),
    systemMetrics: () => daemon.client(MonitorService).getSystemMetrics({}),
    backups: () => daemon.client(BackupService).listBackups({}),
  };
}

/** Calls about an app, in this order; they may fail, in time. */
function ofOne(apps: Apps, daemon: TestDaemon, id: string): Record<string, Call> {
  const once = async function* <T>(value: T): AsyncGenerator<T, void> {
    yield await Promise.resolve(value);
  };
  return {
    getApp: () => apps.getApp({ id }),
    getAppDisk: () => apps.getAppDisk({ id }),
    getAppImage: () => apps.getAppImage({ id, checkRemote: true }),
    listStacks: () => apps.listStacks({}),
    listAppPorts: () => apps.listAppPorts({ id }),
    getAppLogs: () => apps.getAppLogs({ id }),
    streamAppLogs: () => apps.streamAppLogs({ id }),
    getAppSettings: () => apps.getAppSettings({ id }),
    updateAppSettings: () => apps.updateAppSettings({ id, values: {} }),
    attachConsole: () => apps.attachConsole(once({ appId: id, session: "shell", command: ["true"] })),
    cloneApp: () => apps.cloneApp({ id }),
    createBackup: () => daemon.client(BackupService, "grpc").createBackup({ appId: id, storages: ["local"] }),
    exportApp: () => apps.exportApp({ id, to: "compose" }),
    scaleApp: () => apps.scaleApp({ id, replicas: 1 }),
    cancelAppOperation: () => apps.cancelAppOperation({ id }),
    placeApp: () => apps.placeApp({ id, placement: { on: "swarm" } }),
    repullApp: () => apps.repullApp({ id }),
    restartApp: () => apps.restartApp({ id }),
    stopApp: () => apps.stopApp({ id }),
    startApp: () => apps.startApp({ id }),
    upgradeApp: () => apps.upgradeApp({ id }),
    installApp: () => apps.installApp({ spec: join(daemon.dir, id) }),
    renameApp: () => apps.renameApp({ id, name: `${id} renamed` }),
    removeApp: () => apps.removeApp({ id }),
  };
}

/** Variants of the above, endless streams, and calls without the engine. */
const elsewhere = new Set([
  ...["installAppStream", "upgradeAppStream", "cloneAppStream", "streamAppStats", "awaitAppStream"],
  ...["issueConsoleToken", "getAppStatsHistory"],
]);

interface Outcome {
  readonly call: string;
  readonly tookMs: number;
  readonly error: Awaited<ReturnType<typeof errorOf>> | undefined;
}

async function outcomeOf(call: string, ask: Call): Promise<Outcome> {
  const startedMs = performance.now();
  const error = await errorOf(ask()).catch((reason: unknown) => {
    assert.equal((reason as Error).message, "the call succeeded");
    return undefined;
  });
  return { call, tookMs: performance.now() - startedMs, error };
}

dockerTest(`commands say that the engine of an app is stopped, and what to do${needsDocker}`, async (t) => {
  t.timeout(120_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const svc = (...args: string[]): ReturnType<typeof runSvc> =>
    runSvc([...args, "--socket", daemon.socketPath]);
  const spec = join(daemon.dir, "box");
  await writeFiles(spec, {
    "svc.yaml": `id: box\nname: Box\nversion: "1"\ndocker: { image: "svc/box:latest", command: [sleep, "1000000"] }\n`,
  });
  t.is((await svc("install", spec, "--start")).exitCode, 0);
  await engine.stop();
  await eventually(async () => assert.match((await svc("ls")).stdout, /UNKNOWN/));
  for (const [line, stderr] of [
    ["start box", /^svc: the container engine is not available; app "box" will start when it is back\n$/],
    ["upgrade box", /^svc: app "box" cannot be upgraded now: the container engine .*\n$/],
    [
      "stop box",
      /^svc: the container engine is not available, so app "box" could not be stopped; try again when it is back\n$/,
    ],
  ] as const) {
    const refused = await svc(...line.split(" "));
    t.is(refused.exitCode, 6, line);
    t.regex(refused.stderr, stderr, line);
  }
});

composeTest(`an engine that hangs delays no call beyond its timeout${needsCompose}`, async (t) => {
  t.timeout(300_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService, "grpc");
  await installAll(daemon);
  const named = new Set([...Object.keys(ofAll(daemon)), ...Object.keys(ofOne(apps, daemon, ""))]);
  for (const method of Object.keys(AppService.method)) {
    t.true(named.has(method) || elsewhere.has(method), `${method} is not covered for an engine that hangs`);
  }

  await engine.pause();
  const outcomes: Outcome[] = [];
  const shared = Promise.all(
    Object.entries(ofAll(daemon)).map(async ([call, ask]) => {
      const outcome = await outcomeOf(call, ask);
      t.is(outcome.error, undefined, `${call}: ${outcome.error?.message}`);
      outcomes.push(outcome);
    }),
  );
  const each = ["box", "stack"].map(async (id) => {
    for (const [call, ask] of Object.entries(ofOne(apps, daemon, id))) {
      const outcome = await outcomeOf(`${call} of ${id}`, ask);
      outcomes.push(outcome);
      if (outcome.error === undefined) continue;
      t.true(
        ["Unavailable", "FailedPrecondition"].includes(outcome.error.code),
        `${outcome.call}: ${outcome.error.message}`,
      );
    }
  });
  // At the same time an app without containers stops and starts, which measures how busy the host is.
  let busyMs = 0;
  const others = (async () => {
    for (const call of ["stopApp", "startApp", "restartApp"] as const) {
      const outcome = await outcomeOf(`${call} of hello`, () => apps[call]({ id: "hello" }));
      t.is(outcome.error, undefined, outcome.error?.message);
      busyMs = Math.max(busyMs, outcome.tookMs);
    }
  })();
  await Promise.all([shared, others, ...each]);
  t.true(busyMs < 8_000, `an app without containers took ${Math.round(busyMs)} ms`);
  for (const { call, tookMs } of outcomes)
    t.true(
      tookMs < promisedMs + badMomentMs + 2 * busyMs,
      `${call} took ${Math.round(tookMs)} ms, ${Math.round(busyMs)} ms elsewhere`,
    );
  const slowest = outcomes.toSorted((a, b) => b.tookMs - a.tookMs).slice(0, 8);
  t.log(
    `${Math.round(busyMs)} ms elsewhere`,
    slowest.map(({ call, tookMs }) => `${call} ${Math.round(tookMs)} ms`).join(", "),
  );

  // Nothing was lost, and everything responds again.
  engine.resume();
  for (const id of ["hello", "box", "stack"]) {
    await eventually(async () => {
      await apps.startApp({ id });
      assert.equal((await apps.getApp({ id })).state, "RUNNING");
    }, 60_000);
  }
});

composeTest(
  `an app that is stopped while the engine hangs during its start is stopped${needsCompose}`,
  async (t) => {
    t.timeout(120_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest");
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    const spec = join(daemon.dir, "stack");
    await writeFiles(spec, projectFiles({ id: "stack", script: forever, volumes: {} }));
    await apps.installApp({ spec });
    await engine.pause();
    await errorOf(apps.startApp({ id: "stack" }));
    t.is((await apps.getApp({ id: "stack" })).state, "FAILED");
    await errorOf(apps.stopApp({ id: "stack" }));
    engine.resume();
    await eventually(async () => {
      const { enabled, operation, state, stateReason } = await apps.getApp({ id: "stack" });
      assert.deepEqual([enabled, operation, state, stateReason], [false, undefined, "STOPPED", ""]);
    });
  },
);

// Containers constantly start and exit: lists are fast and current, however many events there are.

/** 1 s is promised for the response and its content; the rest is for a busy host. */
const boundMs = 5_000;
const loops = 4;
const rounds = 12;
const callers = 20;

/** Commands of four shells that run short containers one after the other. */
class Storm implements AsyncDisposable {
  #goesOn = true;
  #made = 0;
  readonly #loops: Promise<void>[];

  constructor(engine: TestEngine) {
    this.#loops = Array.from({ length: loops }, async (_, loop) => {
      while (this.#goesOn) {
        const id = await engine.run(`storm-${loop}-${this.#made++}`, {
          Image: "svc/box:1",
          Cmd: ["/bin/true"],
        });
        (await engine.request("POST", `/containers/${id}/wait`)).expect(200);
        (await engine.request("DELETE", `/containers/${id}?force=1`)).expect(204);
      }
    });
  }

  get made(): number {
    return this.#made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#goesOn = false;
    await Promise.all(this.#loops);
  }
}

dockerTest(`lists are fast and current during a storm of events${needsDocker}`, async (t) => {
  t.timeout(180_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:1");
  const steady = await engine.run("steady", { Image: "svc/box:1" });
  await using daemon = await startDaemon({ config: engine.config });
  const docker = daemon.client(DockerService, "grpc");
  const tookMs: number[] = [];
  const timed = async <T>(call: () => Promise<T>): Promise<T> => {
    const startedMs = performance.now();
    const answer = await call();
    tookMs.push(performance.now() - startedMs);
    return answer;
  };
  const names = async (): Promise<string[]> =>
    (await timed(() => docker.listContainers({ all: true }))).containers.map(({ name }) => name);
  await names();
  await using storm = new Storm(engine);
  const behindMs: number[] = [];
  // On a busy host the storm itself takes a while.
  let round = 0;
  for (; round < rounds || storm.made <= loops * 2; round++) {
    (await engine.request("POST", `/containers/${steady}/rename?name=steady-${round}`)).expect(204);
    const renamedMs = performance.now();
    for (;;) {
      const askedMs = performance.now();
      if ((await names()).includes(`steady-${round}`)) break;
      assert.ok(askedMs - renamedMs < boundMs, `a list is ${Math.round(askedMs - renamedMs)} ms old`);
    }
    behindMs.push(performance.now() - renamedMs);
    await Promise.all([
      timed(() => docker.listImages({})),
      timed(() => docker.listVolumes({})),
      timed(() => docker.listNetworks({})),
    ]);
  }
  // Concurrent callers share one window.
  const startedMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: callers }, () => docker.listContainerStats({ ids: [`steady-${round - 1}`] })),
  );
  const statsMs = performance.now() - startedMs;
  for (const { stats } of answers)
    t.deepEqual(
      stats.map(({ id }) => id),
      [steady],
    );
  t.true(statsMs < boundMs, `${callers} callers waited ${Math.round(statsMs)} ms`);
  t.true(Math.max(...tookMs) < boundMs, `a response took ${Math.round(Math.max(...tookMs))} ms`);
  const worst = (all: readonly number[]): string => `${Math.round(Math.max(...all))} ms`;
  t.log(
    `${storm.made} containers came and went; the slowest of ${tookMs.length} lists took ${worst(tookMs)}, ` +
      `the oldest was ${worst(behindMs)} behind, ${callers} callers of stats waited ${Math.round(statsMs)} ms`,
  );
});
