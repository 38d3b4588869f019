/** Requests to an engine that hangs are distinguished from requests to a slow one by its other responses. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { createDockerEngine, type DockerEngine } from "../../../src/engine/engine.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import { onShareOf } from "../../../src/lib/share-owner.ts";
import { SvcError } from "../../../src/errors.ts";
import { eventually } from "../../support/eventually.ts";

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
