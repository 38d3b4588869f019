/** The event-driven view of the engine, and how a hanging engine is distinguished from a slow one. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { EngineState, type EngineChange } from "../../../src/engine/engine-state.ts";
import { createDockerEngine, type DockerEngine } from "../../../src/engine/engine.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import { SvcError } from "../../../src/errors.ts";
import { onShareOf } from "../../../src/lib/share-owner.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { startEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";

// The event-driven view of the engine, against a real one that changes, hangs, dies and restarts.

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

// Requests to an engine that hangs are distinguished from requests to a slow one by its other responses.

interface Scripted extends AsyncDisposable {
  readonly engine: DockerEngine;
  readonly events: EngineEvents;
  /** Whether it responds to further requests; work in progress continues. */
  answers: boolean;
  /** Makes it send an event. */
  tell(): void;
}

/** An engine that pulls images as `pull` says, never lists containers, and whose events are requested once. */
async function script(pull: (response: ServerResponse) => void, answerMs = 600_000): Promise<Scripted> {
  await using resources = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "svc-engine-"));
  resources.defer(() => rm(dir, { recursive: true }));
  const socket = join(dir, "engine.sock");
  const told = new Set<ServerResponse>();
  const event = JSON.stringify({ Type: "container", Action: "create", Actor: { ID: "a", Attributes: {} } });
  const state = {
    answers: true,
    tell: () => {
      for (const response of told) response.write(`${event}\n`);
    },
  };
  const server = createServer((request, response) => {
    request.resume();
    const { url = "" } = request;
    const version = { ApiVersion: "1.47", MinAPIVersion: "1.24" };
    if (url.includes("/images/create")) pull(response);
    else if (url.includes("/containers/json")) return;
    else if (!state.answers) return;
    else if (url.includes("/events")) {
      response.flushHeaders();
      told.add(response);
    } else response.setHeader("Content-Type", "application/json").end(JSON.stringify(version));
  });
  server.listen(socket);
  await once(server, "listening");
  resources.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  const plain = resources.use(createDockerEngine({ socket }));
  // Only a waiting caller detects a hang.
  const events = resources.use(new EngineEvents({ engine: plain, heartbeatMs: 600_000, answerMs }));
  await events.verify();
  const owned = resources.move();
  return Object.assign(state, {
    engine: new WatchedEngine(plain, events),
    events,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  });
}

/** All progress messages of a pull. */
async function pull(engine: DockerEngine): Promise<string> {
  return engine.operate(
    "pull",
    async (docker) => {
      const stream = await docker.createImage({ fromImage: "a", tag: "1" });
      let text = "";
      for await (const chunk of stream) text += String(chunk);
      return text;
    },
    { timeoutMs: 120_000 },
  );
}

test("stalled work fails if the engine does not respond to other requests either", async (t) => {
  t.timeout(180_000);
  const { promise: begun, resolve } = Promise.withResolvers<undefined>();
  await using scripted = await script((response) => {
    response.write("begun\n");
    resolve(undefined);
  });
  const pulled = pull(scripted.engine);
  await begun;
  scripted.answers = false;
  const hungAtMs = performance.now();
  const error = await t.throwsAsync(pulled, { instanceOf: SvcError });
  const tookMs = performance.now() - hungAtMs;
  t.is(error.code, "unavailable");
  t.regex(error.message, /^the container engine has not responded for 2\.5 s/);
  t.log(`${Math.round(tookMs)} ms`);
  t.true(tookMs < 30_000, `it took ${Math.round(tookMs)} ms`);
});

test("work with progress continues on a busy engine that delays its responses", async (t) => {
  t.timeout(180_000);
  const { promise: begun, resolve } = Promise.withResolvers<undefined>();
  await using scripted = await script((response) => {
    let lines = 0;
    const timer = setInterval(() => {
      response.write("line\n");
      resolve(undefined);
      if (++lines < 30) return;
      clearInterval(timer);
      response.end();
    }, 250);
  });
  const pulled = pull(scripted.engine);
  await begun;
  scripted.answers = false;
  t.is((await pulled).length, 150);
});

test("silent work continues on a busy engine that delays its responses and sends events", async (t) => {
  t.timeout(180_000);
  const { promise: begun, resolve } = Promise.withResolvers<undefined>();
  await using scripted = await script((response) => {
    response.flushHeaders();
    resolve(undefined);
    void wait(7_000).then(() => response.end("done"));
  });
  const pulled = pull(scripted.engine);
  await begun;
  scripted.answers = false;
  const timer = setInterval(() => scripted.tell(), 250);
  t.teardown(() => clearInterval(timer));
  t.is(await pulled, "done");
});

test("a user whose calls fill their share does not make the engine look hung", async (t) => {
  t.timeout(180_000);
  await using scripted = await script(() => undefined);
  const { engine, events } = scripted;
  const over = new AbortController();
  await onShareOf(1, async () => {
    const calls = Array.from({ length: 16 }, () =>
      engine.call("list containers", (docker) => docker.listContainers(), {
        signal: over.signal,
        timeoutMs: 600_000,
      }),
    );
    const ended = Promise.allSettled(calls);
    await events.verify();
    t.false(events.isUnresponsive);
    over.abort(new Error("no longer needed"));
    for (const { status, reason } of (await ended) as PromiseRejectedResult[])
      t.deepEqual([status, reason], ["rejected", over.signal.reason]);
  });
});

test("silent work continues on an engine that responds", async (t) => {
  t.timeout(180_000);
  await using scripted = await script((response) => {
    response.flushHeaders();
    void wait(7_000).then(() => response.end("done"));
  });
  t.is(await pull(scripted.engine), "done");
});

test("the timeout for an engine that has failed is shorter than for a slow one", async (t) => {
  t.timeout(180_000);
  await using scripted = await script(() => undefined, 5_000);
  const { events } = scripted;
  scripted.answers = false;
  events.verify().catch(() => undefined);
  await eventually(() => assert.notEqual(events.error, undefined), 60_000);
  // Timers fire in their order, however late.
  const first = await Promise.race([events.verify().catch(() => "answered"), wait(2_000, "waited")]);
  t.is(first, "answered");
  // It is available again as soon as it responds.
  scripted.answers = true;
  await eventually(() => events.verify(), 60_000);
  t.is(events.error, undefined);
});

test("a caller that has already waited for an engine waits only for the rest of the timeout", async (t) => {
  t.timeout(180_000);
  await using scripted = await script(() => undefined);
  const { events } = scripted;
  t.false(events.isUnresponsive);
  scripted.answers = false;
  // Timers fire in their order, however late.
  const first = await Promise.race([
    events.verify(2_400).catch(() => "given up"),
    wait(1_500, "waited for all of it"),
  ]);
  t.is(first, "given up");
  t.true(events.isUnresponsive);
});
