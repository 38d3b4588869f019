/**
 * The engine hangs, is killed and returns under load: DockerService reports it in time, and everything else continues.
 */
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker, type TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { sendRest } from "../support/rest-transport.ts";

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
      await answersAgain(t, client);
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
    await answersAgain(t, client);
  }
  ended.abort();
  await Promise.all(loads);
  t.log(JSON.stringify(seen));
  t.deepEqual(seen.others, []);
  t.true(seen.answers > 0);
  t.true(seen.slowestMs < deadlineMs, `${seen.slowestMs} ms`);
});

/** Every method responds again within 5 s of the engine's return. */
async function answersAgain(t: ExecutionContext, client: Docker): Promise<void> {
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
