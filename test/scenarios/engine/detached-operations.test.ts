/** Detached operations that need an engine, and the build cache of a real builder. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { type Operation, OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { DiskMeter } from "../../../src/engine/disk-usage.ts";
import { DockerHost } from "../../../src/engine/docker-host.ts";
import { EngineState } from "../../../src/engine/engine-state.ts";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import { type TestDaemon, startDaemon } from "../../support/daemon.ts";
import { engineRequest } from "../../support/docker-request.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipIn } from "../../support/ownership.ts";
import { writeFiles } from "../../support/packages.ts";
import { findSwarmObstacle, startSwarm } from "../../support/swarm.ts";

// AVA looks for tests as soon as it finds the first hook.
const whyNoSwarm = await findSwarmObstacle();
const engineNow = sharedEngine();
const swarmTest = whyNoSwarm === undefined ? test : test.skip;
const needsSwarm = whyNoSwarm === undefined ? "" : ` (skipped: ${whyNoSwarm})`;

/** The operation after it has finished, and the phases that it reported. */
async function finished(
  daemon: TestDaemon,
  { detached }: { detached?: Operation | undefined },
): Promise<{ last: Operation; phases: string[] }> {
  assert.ok(detached);
  let last = detached;
  const phases = new Set<string>();
  for await (const { event } of daemon.client(OperationService).streamOperation({ id: detached.id })) {
    if (event.case === "line") phases.add(event.value.phase);
    if (event.case === "operation") last = event.value;
  }
  return { last, phases: [...phases] };
}

async function writeImagePackage(daemon: TestDaemon, id: string, image: string): Promise<string> {
  const dir = join(daemon.dir, id);
  await writeFiles(dir, {
    "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\ndocker: { image: "${image}" }\n`,
  });
  return dir;
}

dockerTest(`a detached prune removes the selected items and reports its result${needsDocker}`, async (t) => {
  t.timeout(120_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  const docker = daemon.client(DockerService);
  for (const Name of ["chosen", "left"])
    (await engine.request("POST", "/volumes/create", { Name })).expect(201);
  const request = { target: "volumes", danglingOnly: false, ids: ["chosen"], detach: true };
  const { last, phases } = await finished(daemon, await docker.pruneDocker(request));
  t.like(last, { kind: "prune", state: "SUCCEEDED", appId: "", detached: true });
  t.deepEqual(phases, ["remove"]);
  t.deepEqual(
    (last.result?.["removed"] as { name: string }[]).map(({ name }) => name),
    ["chosen"],
  );
  t.is((await engine.request("GET", "/volumes/chosen")).status, 404);
  (await engine.request("GET", "/volumes/left")).expect(200);
});

dockerTest(`a detached repull puts a running app on its new image${needsDocker}`, async (t) => {
  t.timeout(120_000);
  const engine = engineNow();
  const registry = await engine.registry();
  const tag = `${registry.host}/detached:latest`;
  const publish = async (n: string): Promise<void> => {
    await engine.images.build(tag, { labels: { n } });
    await engine.images.push(tag);
    await engine.images.remove(tag);
  };
  await publish("1");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await writeImagePackage(daemon, "web", tag) });
  await apps.startApp({ id: "web" });
  const same = await finished(daemon, await apps.repullApp({ id: "web", detach: true }));
  t.like(same.last, { kind: "repull", state: "SUCCEEDED", result: { changed: false, restarted: false } });
  await publish("2");
  const { last, phases } = await finished(daemon, await apps.repullApp({ id: "web", detach: true }));
  t.like(last, { state: "SUCCEEDED", appId: "web", result: { changed: true, restarted: true } });
  t.true(phases.includes("pull"));
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
});

swarmTest(`a detached placement moves an app to a swarm and back${needsSwarm}`, async (t) => {
  t.timeout(240_000);
  await using swarm = await startSwarm(1);
  const tag = `${swarm.registry}/web:1`;
  await swarm.manager.images.build(tag);
  await swarm.manager.images.push(tag);
  await using daemon = await startDaemon({
    config: `[docker]\nsocket = "${swarm.manager.socket}"\npublish_address = "0.0.0.0"`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await writeImagePackage(daemon, "web", tag) });
  const toSwarm = { id: "web", placement: { on: "swarm", replicas: 1 }, detach: true };
  const toMachine = { id: "web", placement: { on: "machine" }, detach: true };
  const pending = await apps.placeApp(toSwarm);
  t.like(pending, { id: "web", state: "STOPPED" });
  const { last } = await finished(daemon, pending);
  t.like(last, { kind: "place", state: "SUCCEEDED", appId: "web", error: undefined });
  t.like(await apps.getApp({ id: "web" }), { placement: { on: "swarm", replicas: 1 } });

  await apps.startApp({ id: "web" });
  const refused = await finished(daemon, await apps.placeApp(toMachine));
  t.like(refused.last, { state: "FAILED", error: { detail: { reason: "app_running" } } });
  await apps.stopApp({ id: "web" });
  const back = await finished(daemon, await apps.placeApp(toMachine));
  t.is(back.last.state, "SUCCEEDED");
  t.is((await apps.getApp({ id: "web" })).placement, undefined);
  t.like(await errorOf(apps.scaleApp({ id: "web", replicas: 2 })), { reason: "not_possible" });
});

// The build cache of a real builder: measured, planned, pruned.

const shared = sharedEngine();

/** Builds an image of two layers with BuildKit; its cache remains. */
async function build(engine: TestEngine, name: string): Promise<void> {
  const dir = await mkdtemp(join(engine.dir, "context-"));
  await writeFile(join(dir, "Dockerfile"), "FROM scratch\nCOPY a /a\nCOPY b /b\n");
  await writeFile(join(dir, "a"), name);
  await writeFile(join(dir, "b"), `${name} too`);
  const { stdout } = await promisify(execFile)("tar", ["-c", "-C", dir, "."], { encoding: "buffer" });
  const uploadPath = `/build?version=2&buildid=upload-request:${name}`;
  const query = new URLSearchParams({
    version: "2",
    t: `${name}:1`,
    remote: "upload-request",
    buildid: name,
  });
  const [, built] = await Promise.all([
    engineRequest(engine.socket, "POST", uploadPath, Readable.from([stdout])),
    engine.request("POST", `/build?${query.toString()}`),
  ]);
  built.expect(200);
}

async function cacheIds(engine: TestEngine): Promise<string[]> {
  const { BuildCache } = (await engine.request("GET", "/system/df")).expect(200) as {
    BuildCache: { ID: string }[] | null;
  };
  return (BuildCache ?? []).map(({ ID }) => ID).toSorted();
}

/** The builder reorders its records for a moment after a build: waits until two listings in a row are equal. */
async function settledCacheIds(engine: TestEngine): Promise<string[]> {
  let seen = await cacheIds(engine);
  return eventually(async () => {
    await sleep(500);
    const before = seen;
    seen = await cacheIds(engine);
    assert.deepEqual(seen, before);
    return seen;
  }, 60_000);
}

for (const danglingOnly of [true, false]) {
  const what = danglingOnly ? "unshared records" : "all records";
  dockerTest(
    `a prune of the build cache removes ${what}, as its dry run reports${needsDocker}`,
    async (t) => {
      const engine = shared();
      await using resources = new AsyncDisposableStack();
      const client = resources.use(createDockerEngine({ socket: engine.socket }));
      const events = resources.use(new EngineEvents({ engine: client }));
      const state = resources.use(new EngineState({ engine: client, events }));
      const apps = { revision: 1, ids: () => [], engineNeeds: () => Promise.resolve(new Map()) };
      const disk = new DiskMeter(new WatchedEngine(client, events));
      const host = new DockerHost({
        engine: client,
        events,
        state,
        disk,
        ownership: ownershipIn("ours"),
        apps,
      });
      const signal = AbortSignal.timeout(60_000);

      await build(engine, danglingOnly ? "one" : "two");
      const before = await settledCacheIds(engine);
      t.true(before.length >= 3);
      const usage = await host.diskUsage(signal);
      t.is(usage.buildCache?.count, before.length);
      const plan = await host.prune({ target: "build_cache", danglingOnly, dryRun: true }, signal);
      t.deepEqual(await cacheIds(engine), before, "a dry run removes nothing");
      const done = await host.prune({ target: "build_cache", danglingOnly, dryRun: false }, signal);
      t.deepEqual(done, plan);
      t.deepEqual(done.skipped, []);
      t.true(done.removed.length > 0);
      const gone = new Set(done.removed.map(({ id }) => id));
      t.deepEqual(
        await cacheIds(engine),
        before.filter((id) => !gone.has(id)),
      );
      if (!danglingOnly) t.is(gone.size, before.length);
      t.true(done.removed.every(({ sizeBytes }) => sizeBytes >= 0));
    },
  );
}
