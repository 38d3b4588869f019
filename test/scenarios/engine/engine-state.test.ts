/** The event-driven view of the engine, against a real one that changes, hangs, dies and restarts. */
import assert from "node:assert/strict";
import { EngineEvents } from "../../../src/engine/events.ts";
import { EngineState, type EngineChange } from "../../../src/engine/engine-state.ts";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { SvcError } from "../../../src/errors.ts";
import { startEngine } from "../../support/docker.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";

const shared = sharedEngine();

interface Watch extends AsyncDisposable {
  state: EngineState;
  changes: EngineChange[];
}

function watch(socket: string, answerMs = 5_000): Watch {
  const engine = createDockerEngine({ socket });
  const events = new EngineEvents({ engine, heartbeatMs: 200, answerMs });
  const state = new EngineState({ engine, events });
  const changes: EngineChange[] = [];
  state.onChange((change) => changes.push(change));
  return {
    state,
    changes,
    [Symbol.asyncDispose]: async () => {
      await state[Symbol.asyncDispose]();
      await events[Symbol.asyncDispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

/** Asserts that the change is visible within a second. */
const soonMs = 1_000;

dockerTest(`all states of a container are visible within a second${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/life:1", { ports: ["80/tcp"], labels: { from: "image" } });
  await using watched = watch(engine.socket);
  const { state } = watched;
  t.deepEqual((await state.containers()).containers, []);
  const post = async (path: string): Promise<void> => {
    const answer = await engine.request("POST", path);
    assert.ok(answer.status < 300, answer.text);
  };
  const seen = async (check: (found: Awaited<ReturnType<typeof find>>) => void): Promise<void> =>
    eventually(async () => check(await find()), soonMs);
  const find = async (name = "life") =>
    (await state.containers()).containers.find((container) => container.name === name);
  const id = await engine.run("life", {
    Image: "svc/life:1",
    Labels: { "com.docker.compose.project": "p", "com.docker.compose.service": "s" },
    HostConfig: { PortBindings: { "80/tcp": [{ HostIp: "127.0.0.1", HostPort: "0" }] }, Memory: 64 << 20 },
  });
  await seen((container) => {
    assert.equal(container?.state, "running");
    assert.match(container.status, /^Up /);
    assert.equal(container.ports[0]?.hostAddress, "127.0.0.1");
    assert.ok((container.ports[0].hostPort ?? 0) > 0);
  });
  t.like(await find(), {
    id,
    image: "svc/life:1",
    composeProject: "p",
    composeService: "s",
    health: "none",
    memoryLimitBytes: 64 << 20,
    networkMode: "default",
    labels: { from: "image" } as never,
  });
  await post("/containers/life/pause");
  await seen((container) => assert.match(container?.status ?? "", /\(Paused\)$/));
  await post("/containers/life/unpause");
  await seen((container) => assert.equal(container?.state, "running"));
  await post("/containers/life/rename?name=other");
  await eventually(async () => assert.equal((await find("other"))?.id, id), soonMs);
  await post("/containers/other/rename?name=life");
  await post("/containers/life/stop?t=5");
  await seen((container) => assert.match(container?.status ?? "", /^Exited \(0\) /));
  t.is((await find())?.ports[0]?.hostPort, undefined);
  (await engine.request("DELETE", "/containers/life")).expect(204);
  await seen((container) => assert.equal(container, undefined));
  t.true(watched.changes.some((change) => change.kind === "containers" && change.ids.has(id)));
});

dockerTest(`images, volumes and networks are visible as soon as they change${needsDocker}`, async (t) => {
  const engine = shared();
  await using watched = watch(engine.socket);
  const { state } = watched;
  const image = await engine.images.build("svc/seen:1", { labels: { a: "b" } });
  const seen = (await state.images()).items.find(({ id }) => id === image);
  t.like(seen, { tags: ["svc/seen:1"], digests: [], labels: { a: "b" } as never });
  t.true((seen?.sizeBytes ?? 0) > 1_000_000);
  const before = await state.images();
  t.is(await state.images(), before, "the same object while nothing changed");
  await engine.images.tag("svc/seen:1", "svc/seen:2");
  await eventually(async () => {
    const tags = (await state.images()).items.find(({ id }) => id === image)?.tags;
    assert.deepEqual(tags, ["svc/seen:1", "svc/seen:2"]);
  }, soonMs);
  t.not((await state.images()).revision, before.revision);
  (await engine.request("POST", "/volumes/create", { Name: "named" })).expect(201);
  (await engine.request("POST", "/volumes/create", {})).expect(201);
  await eventually(async () => {
    const { items } = await state.volumes();
    assert.deepEqual(items.map(({ isAnonymous }) => isAnonymous).sort(), [false, true]);
  }, soonMs);
  const network = { Name: "seen", Internal: true, IPAM: { Config: [{ Subnet: "10.233.7.0/29" }] } };
  (await engine.request("POST", "/networks/create", network)).expect(201);
  await eventually(async () => {
    const found = (await state.networks()).items.find(({ name }) => name === "seen");
    assert.deepEqual(found?.subnets, ["10.233.7.0/29"]);
    assert.ok(found.isInternal);
  }, soonMs);
  (await engine.request("DELETE", "/networks/seen")).expect(204);
  await eventually(async () => {
    const { items } = await state.networks();
    assert.ok(!items.some(({ name }) => name === "seen"));
  }, soonMs);
});

dockerTest(`a list is the same object until something changes${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/same:1");
  await using watched = watch(engine.socket);
  (await engine.request("POST", "/containers/create?name=same", { Image: "svc/same:1" })).expect(201);
  await eventually(async () => {
    const { containers } = await watched.state.containers();
    assert.ok(containers.some(({ name }) => name === "same"));
  }, soonMs);
  const list = watched.state.containersNow();
  t.true((await watched.state.containers()) === list);
  (await engine.request("DELETE", "/containers/same")).expect(204);
  await eventually(() => assert.notEqual(watched.state.containersNow()?.revision, list?.revision), soonMs);
});

dockerTest(`health and restarts are visible${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/health:1", {
    healthcheck: { command: ["/bin/test", "-e", "/tmp/well"], intervalMs: 200, retries: 1 },
    cmd: ["/bin/sh", "-c", "sleep 1; touch /tmp/well; sleep 3600"],
  });
  await using watched = watch(engine.socket);
  await watched.state.containers();
  const id = await engine.run("health", { Image: "svc/health:1" });
  await eventually(() => assert.match(watched.state.containerNow(id)?.status ?? "", /\(healthy\)$/));
  await engine.run("restarts", {
    Image: "svc/health:1",
    Cmd: ["/bin/false"],
    HostConfig: { RestartPolicy: { Name: "on-failure", MaximumRetryCount: 2 } },
  });
  await eventually(() => {
    const found = watched.state.containersNow()?.containers.find(({ name }) => name === "restarts");
    assert.equal(found?.restarts, 2);
    assert.equal(found.state, "exited");
    assert.equal(found.exitCode, 1);
  });
  for (const name of ["health", "restarts"]) await engine.request("DELETE", `/containers/${name}?force=1`);
  t.pass();
});

dockerTest(`a caller that changed a container sees the change at once${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/at-once:1");
  await using watched = watch(engine.socket);
  await watched.state.containers();
  const id = await engine.run("at-once", { Image: "svc/at-once:1" });
  t.is((await watched.state.refreshContainer("at-once"))?.id, id);
  t.is(watched.state.containerNow(id)?.state, "running");
  (await engine.request("DELETE", `/containers/${id}?force=1`)).expect(204);
  t.is(await watched.state.refreshContainer(id), undefined);
});

dockerTest(
  `an engine that hangs is unavailable, and available again when it continues${needsDocker}`,
  async (t) => {
    await using hanging = await startEngine();
    await hanging.images.build("svc/app:1");
    const id = await hanging.run("app", { Image: "svc/app:1" });
    await using watched = watch(hanging.socket, 500);
    await watched.state.containers();
    await hanging.pause();
    await eventually(() => assert.ok(!watched.state.isAvailable), 5_000);
    const startedAtMs = performance.now();
    const error = await t.throwsAsync(watched.state.containers(), { instanceOf: SvcError });
    t.is(error.code, "unavailable");
    t.true(performance.now() - startedAtMs < 5_000);
    t.is(watched.state.containerNow(id), undefined);
    hanging.resume();
    await eventually(() => assert.equal(watched.state.containerNow(id)?.state, "running"), 5_000);
    t.deepEqual(
      watched.changes.map(({ kind }) => kind).filter((kind) => kind.endsWith("available")),
      ["available", "unavailable", "available"],
    );
  },
);

dockerTest(
  `changes during a disconnection are visible within 5 s of the engine's return${needsDocker}`,
  async (t) => {
    await using dying = await startEngine();
    await dying.images.build("svc/app:1");
    const kept = await dying.run("kept", { Image: "svc/app:1" });
    await using watched = watch(dying.socket);
    await watched.state.containers();
    t.is(watched.state.containerNow(kept)?.state, "running");
    await dying.kill();
    await eventually(() => assert.ok(!watched.state.isAvailable), 1_000);
    const error = await t.throwsAsync(watched.state.containers(), { instanceOf: SvcError });
    t.is(error.code, "unavailable");
    await dying.start();
    // Without a read: it reconnects on its own.
    await eventually(() => assert.equal(watched.state.containerNow(kept)?.state, "exited"), 5_000);
    await dying.restart();
    await eventually(() => assert.ok(watched.state.isAvailable), 5_000);
    (await dying.request("DELETE", "/containers/kept")).expect(204);
    await eventually(() => assert.deepEqual(watched.state.containersNow()?.containers, []), soonMs);
  },
);

dockerTest(`after a storm of changes the view equals the engine's state${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/storm:1");
  await using watched = watch(engine.socket);
  await watched.state.containers();
  const names = Array.from({ length: 12 }, (_, at) => `storm-${at}`);
  await Promise.all(
    names.map(async (name, at) => {
      await engine.run(name, { Image: "svc/storm:1" });
      if (at % 2 === 0) await engine.request("POST", `/containers/${name}/kill`);
      if (at % 3 === 0) await engine.request("DELETE", `/containers/${name}?force=1`);
    }),
  );
  await eventually(async () => {
    const listed = (await engine.request("GET", "/containers/json?all=1")).expect(200) as {
      Id: string;
      State: string;
    }[];
    const known = (await watched.state.containers()).containers;
    const pairs = (all: readonly (readonly [string, string])[]): string[] =>
      all.map((pair) => pair.join(" ")).sort();
    assert.deepEqual(
      pairs(known.map(({ id, state }) => [id, state] as const)),
      pairs(listed.map(({ Id, State }) => [Id, State] as const)),
    );
  }, soonMs);
  await Promise.all(names.map((name) => engine.request("DELETE", `/containers/${name}?force=1`)));
  t.pass();
});
