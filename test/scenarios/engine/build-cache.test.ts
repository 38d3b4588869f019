/** The build cache of a real builder: measured, planned, pruned. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { DiskMeter } from "../../../src/engine/disk-usage.ts";
import { DockerHost } from "../../../src/engine/docker-host.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { EngineState } from "../../../src/engine/engine-state.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import { eventually } from "../../support/eventually.ts";
import { engineRequest } from "../../support/docker-request.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { ownershipIn } from "../../support/ownership.ts";

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
