/** Containers that others or an earlier svc started: which ones belong to an app. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { EngineOwnership, type ObjectKind } from "../../../src/engine/ownership.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { composeTest, hostSearchPath, needsCompose } from "../../runtimes/support/compose-test.ts";
import { sharedFixture, startApp, forever } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipIn } from "../../support/ownership.ts";
import { searchPath } from "../../support/search-path.ts";

// Containers that others start through the engine are not the app: svc stops those of old releases, and takes over nothing
// else.

const fixtureNow = sharedFixture();
const deadlineMs = 60_000;

interface Listed {
  readonly Id: string;
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

async function containersOf(engine: TestEngine, app: string): Promise<Listed[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  return (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200) as Listed[];
}

async function statesOf(engine: TestEngine, app: string): Promise<Record<string, string>> {
  return Object.fromEntries((await containersOf(engine, app)).map(({ Id, State }) => [Id, State]));
}

async function startByHand(engine: TestEngine, id: string): Promise<void> {
  (await engine.request("POST", `/containers/${id}/start`)).expect(204);
}

const manifest = `docker: { image: "svc/shell:1" }
settings: { properties: { word: { type: string, default: old, env: WORD } } }`;

dockerTest(`an externally started container of an old release is stopped${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { engine, runtime } = fixture;
  const before = await startApp(runtime, await fixture.app("released", manifest));
  const [old] = await containersOf(engine, "released");
  await runtime.stop(before);
  const app: RunnableApp = { ...before, settings: { word: "new" } };
  await runtime.start(app);
  t.is(Object.keys(await statesOf(engine, "released")).length, 2);
  await startByHand(engine, old!.Id);
  await eventually(async () => {
    const states = await statesOf(engine, "released");
    assert.equal(states[old!.Id], "exited");
    assert.deepEqual(Object.values(states).sort(), ["exited", "running"]);
    assert.equal(runtime.status("released")?.state, "RUNNING");
  }, deadlineMs);
  // The retained old one is removed once the new one is confirmed.
  await eventually(async () => {
    // svc may not have noticed its exit yet.
    await runtime.settle(app);
    assert.deepEqual(Object.values(await statesOf(engine, "released")), ["running"]);
  }, deadlineMs);
  await runtime.stop(app);
  await runtime.remove(app);
});

dockerTest(
  `a container with settings other than those of its start is not reattached${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const app = await fixture.app("digested", manifest, { settings: { word: "this" } });
    await startApp(runtime, app);
    for (const [word, found] of [
      ["this", "running"],
      ["that", "lost"],
    ] as const) {
      await using next = await DockerFixture.create(engine, { store: fixture.store });
      t.is(await next.runtime.reattach({ ...app, startedSettings: { word } }), found, word);
    }
    await runtime.stop(app);
    await runtime.remove(app);
  },
);

dockerTest(`an app can be removed while somebody else removes its container${needsDocker}`, async (t) => {
  const { engine, runtime } = fixtureNow();
  // The engine rejects requests during the removal.
  for (const round of ["one", "two", "three"]) {
    const app = await startApp(runtime, await fixtureNow().app(`removed-${round}`, manifest));
    const [container] = await containersOf(engine, app.id);
    await Promise.all([
      engine.request("DELETE", `/containers/${container!.Id}?force=1`),
      t.notThrowsAsync(runtime.remove(app)),
    ]);
    t.deepEqual(await containersOf(engine, app.id), []);
  }
});

dockerTest(`a stopped app stays stopped if somebody starts its container${needsDocker}`, async (t) => {
  const { engine } = fixtureNow();
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  const directory = join(daemon.dir, "still");
  await mkdir(directory);
  await writeFile(join(directory, "svc.yaml"), `id: still\nname: Still\nversion: "1"\n${manifest}\n`);
  await apps.installApp({ spec: directory });
  await apps.startApp({ id: "still" });
  await apps.stopApp({ id: "still" });
  const [container] = await containersOf(engine, "still");
  const since = Math.floor(Date.now() / 1000) - 1;
  await startByHand(engine, container!.Id);
  await eventually(async () => {
    assert.deepEqual(Object.values(await statesOf(engine, "still")), ["exited"]);
    const { state, enabled } = await apps.getApp({ id: "still" });
    assert.deepEqual({ state, enabled }, { state: "STOPPED", enabled: false });
  }, deadlineMs);
  // svc stopped it; it did not exit by itself.
  const filters = encodeURIComponent(JSON.stringify({ container: [container!.Id], event: ["kill"] }));
  const until = Math.ceil(Date.now() / 1000) + 1;
  const { text } = await engine.request("GET", `/events?since=${since}&until=${until}&filters=${filters}`);
  t.regex(text, /"kill"/);
  await apps.removeApp({ id: "still" });
});

// Projects that an svc without proofs started survive an upgrade, with their names and data.

const engineNow = sharedEngine();

/** Labels objects as svc did before proofs existed. */
class EarlierOwnership extends EngineOwnership {
  override labels(kind: ObjectKind, appId: string): Record<string, string> {
    const { "svc.proof": _, ...labels } = super.labels(kind, appId);
    return labels;
  }
}

function earlierOwnership(): EngineOwnership {
  return new EarlierOwnership({ storeId: "test", key: "none", isUnverified: () => true });
}

interface EarlierContainer {
  readonly Names: string[];
  readonly Labels: Record<string, string>;
  readonly State: string;
}

async function earlierContainers({ engine }: DockerFixture, id: string): Promise<EarlierContainer[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  return (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(
    200,
  ) as EarlierContainer[];
}

for (const [which, id, dirs] of [
  ["compose", "kept.one", searchPath],
  ["the host's own compose", "kept.two", hostSearchPath],
] as const) {
  composeTest(
    `a project survives an upgrade to proofs and keeps its volume: ${which}${needsCompose}`,
    async (t) => {
      await engineNow().images.build("svc/shell:1");
      const script = `echo once >> /rows/seen; ${forever}`;
      const file = `services: { db: { image: "svc/shell:1", command: ["/bin/sh", "-c", ${JSON.stringify(script)}], volumes: ["rows:/rows"] } }
volumes: { rows: {} }
`;
      await using before = await DockerFixture.create(engineNow(), { dirs, ownership: earlierOwnership() });
      const app = await before.app(id, "compose: { file: compose.yaml }", {
        files: { "compose.yaml": file },
      });
      await startApp(before.compose, app);
      const [old] = await earlierContainers(before, id);
      t.false("svc.proof" in (old?.Labels ?? {}));

      const { store } = before;
      // Beside the later one, it would restart what that one stops.
      await before[Symbol.asyncDispose]();
      const ownership = ownershipIn("test", [id]);
      await using after = await DockerFixture.create(engineNow(), { dirs, store, ownership });
      const { compose } = after;
      t.is(await compose.reattach(app), "running");
      await eventually(() => assert.equal(compose.status(id)?.state, "RUNNING"));
      t.deepEqual(await compose.volumes.list(id), { own: ["rows"], shared: [], anonymous: [] });
      await compose.stop(app);
      await compose.start(app);
      const [made, ...others] = await earlierContainers(after, id);
      t.deepEqual(others, []);
      t.like(made, { Names: old?.Names, State: "running" });
      t.is(ownership.ownerOf("container", { labels: made?.Labels }), id, "it has a proof now");
      const [name] = (await compose.volumes.all(id)).map(({ Name }) => Name);
      t.is(name, `${ownership.projectOf(id)}_rows`);
      t.deepEqual(
        after.log.filter((line) => line.startsWith("removing a container")),
        [],
      );
      await compose.stop(app);
      t.true((await compose.remove(app)) > 0);
      t.deepEqual(await earlierContainers(after, id), []);
    },
  );
}

dockerTest(
  `a container survives an upgrade to proofs and is stopped and removed${needsDocker}`,
  async (t) => {
    await engineNow().images.build("svc/shell:1");
    const manifest = `docker: { image: "svc/shell:1", command: [/bin/sh, -c, ${JSON.stringify(forever)}] }`;
    await using before = await DockerFixture.create(engineNow(), { ownership: earlierOwnership() });
    const app = await before.app("single", manifest);
    await startApp(before.runtime, app);

    const { store } = before;
    await before[Symbol.asyncDispose]();
    await using after = await DockerFixture.create(engineNow(), {
      store,
      ownership: ownershipIn("test", ["single"]),
    });
    t.is(await after.runtime.reattach(app), "running");
    await after.runtime.stop(app);
    await after.runtime.start(app);
    t.like(after.runtime.status("single"), { state: "RUNNING" });
    t.is((await earlierContainers(after, "single")).length, 1);
    await after.runtime.stop(app);
    await after.runtime.remove(app);
    t.deepEqual(await earlierContainers(after, "single"), []);
  },
);
