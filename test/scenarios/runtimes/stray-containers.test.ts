/**
 * Containers that others start through the engine are not the app: svc stops those of old releases, and adopts nothing
 * else.
 */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";

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
  `a container with settings other than those of its start is not adopted${needsDocker}`,
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
      t.is(await next.runtime.adopt({ ...app, startedSettings: { word } }), found, word);
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
