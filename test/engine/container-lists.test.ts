/** Lists of containers: concurrent reads share requests, and each has a status line. */
import test from "ava";
import { ContainerCache } from "../../src/engine/container-cache.ts";
import type { ContainerRecord } from "../../src/engine/container-record.ts";
import { ContainerSampler } from "../../src/engine/container-sampler.ts";
import type { DockerEngine, OperationOptions } from "../../src/engine/engine.ts";
import { CachedInventory } from "../../src/engine/inventory-list.ts";
import { statusLine, type StatusFacts } from "../../src/engine/status-line.ts";
import { SvcError } from "../../src/errors.ts";
import { onShareOf, shareOwner } from "../../src/lib/share-owner.ts";

// Reads during a storm of events and concurrent reads: their delays, and the number of engine requests.

/** An engine that responds as `answer` says, and has no containers. */
function engineOf(answer: () => Promise<unknown>): DockerEngine {
  const call = async (): Promise<never> => {
    await answer();
    throw new SvcError("not_found", "no such container");
  };
  return { call, operate: call } as unknown as DockerEngine;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const event = (id: string) => ({ type: "container", action: "start", id, attributes: {}, timeMs: 0 });

function cacheOver(engine: DockerEngine): ContainerCache {
  return new ContainerCache({
    engine,
    now: Date.now,
    nextRevision: () => 0,
    onChange: () => undefined,
    onError: (error) => {
      throw error;
    },
  });
}

test("a list does not wait for the end of a storm of events", async (t) => {
  let storms = true;
  let asked = 0;
  const cache: ContainerCache = cacheOver(
    engineOf(async () => {
      asked++;
      await turn();
      if (storms) cache.onEvent(event(`c${asked}`));
    }),
  );
  cache.onEvent(event("first"));
  // It returns although events keep arriving while it waits.
  await cache.caughtUp(60_000);
  t.true(asked > 0);
  t.true(asked < 1_000, "it reads only about earlier events");
  storms = false;
});

test("concurrent events are one request per container", async (t) => {
  let asked = 0;
  const cache = cacheOver(
    engineOf(async () => {
      asked++;
      await turn();
    }),
  );
  for (let round = 0; round < 10; round++) for (const id of ["one", "other"]) cache.onEvent(event(id));
  await cache.caughtUp(60_000);
  t.is(asked, 2);
});

test("a container without a response from the engine delays neither a list nor others", async (t) => {
  // The deadline of a read keeps no process running.
  const alive = setTimeout(() => undefined, 60_000);
  t.teardown(() => clearTimeout(alive));
  const first = Promise.withResolvers<undefined>();
  let asked = 0;
  const cache = cacheOver(engineOf(() => (++asked === 1 ? first.promise : turn())));
  cache.onEvent(event("stuck"));
  await turn();
  cache.onEvent(event("other"));
  await cache.caughtUp(10);
  t.is(asked, 2, "another one is requested in between");
  t.true(cache.lagMs > 0);
  first.resolve(undefined);
  await cache.caughtUp(60_000);
  t.is(cache.lagMs, 0);
});

test("a constantly changing list is one request at a time for all its readers", async (t) => {
  let [asked, now, most] = [0, 0, 0];
  const list = new CachedInventory({
    load: async () => {
      asked++;
      most = Math.max(most, ++now);
      await turn();
      now--;
      return [asked];
    },
    nextRevision: () => asked,
    maxAgeMs: 1_000,
  });
  const reads: Promise<unknown>[] = [];
  for (let reader = 0; reader < 20; reader++) {
    list.invalidate();
    reads.push(list.read());
    if (reader % 5 === 0) await turn();
  }
  await Promise.all(reads);
  t.is(most, 1);
  t.true(asked <= 6, String(asked));
  const before = asked;
  list.invalidate();
  t.deepEqual((await list.read()).items, [before + 1], "it includes earlier changes");
});

test("a list for all users does not use the slots of the first requester", async (t) => {
  const list = new CachedInventory({
    load: () => Promise.resolve([shareOwner()]),
    nextRevision: () => 0,
    maxAgeMs: 60_000,
  });
  const [user, root] = await Promise.all([onShareOf(1001, () => list.read()), list.read()]);
  t.deepEqual([user.items, root.items], [[0], [0]]);
});

test("the usage of containers is measured for all users, without the slots of the first requester", async (t) => {
  const asked: unknown[] = [];
  const engine = {
    operate: (_what: string, _work: unknown, { waitsFor }: OperationOptions) => {
      asked.push([shareOwner(), waitsFor]);
      return Promise.reject(new SvcError("not_found", "no such container"));
    },
  } as DockerEngine;
  // Its PID is known and not that of a container, so the engine measures its usage.
  const state = {
    containerNow: (id: string) => (id === "known" ? ({ pid: 1 } as ContainerRecord) : undefined),
  };
  const sampler = new ContainerSampler({ engine, state });
  await onShareOf(1001, () => sampler.sample(["known", "unknown"]));
  t.deepEqual(
    asked,
    ["known", "known", "unknown"].map(() => [0, "measurement"]),
  );
});

test("a change of a list while it is read is in the next response", async (t) => {
  let happened = 0;
  const list: CachedInventory<number> = new CachedInventory({
    load: async () => {
      const seen = happened;
      happened = 1;
      if (seen === 0) list.invalidate();
      await turn();
      return [seen];
    },
    nextRevision: () => happened,
    maxAgeMs: 60_000,
  });
  await list.read();
  t.deepEqual((await list.read()).items, [1]);
});

test("twenty requests for the usage of containers share one window", async (t) => {
  let asked = 0;
  const engine = engineOf(async () => {
    asked++;
    await turn();
  });
  const sampler = new ContainerSampler({ engine, state: { containerNow: () => undefined } });
  await Promise.all(Array.from({ length: 20 }, () => sampler.sample(["a", "b"])));
  t.is(asked, 2, "each container once");
});

// Status lines as the engine prints them.

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;
const startedAtMs = Date.UTC(2026, 0, 1);
const facts: StatusFacts = {
  state: "running",
  health: "none",
  exitCode: 0,
  startedAtMs,
  finishedAtMs: startedAtMs,
};

for (const [elapsedMs, text] of [
  [0, "Less than a second"],
  [999, "Less than a second"],
  [second, "1 second"],
  [59.9 * second, "59 seconds"],
  [minute, "About a minute"],
  [2 * minute, "2 minutes"],
  [59.9 * minute, "59 minutes"],
  [hour, "About an hour"],
  [1.5 * hour, "2 hours"],
  [47 * hour, "47 hours"],
  [2 * day, "2 days"],
  [13 * day, "13 days"],
  [14 * day, "2 weeks"],
  [60 * day, "2 months"],
  [800 * day, "2 years"],
] as const) {
  test(`after ${elapsedMs} ms: ${text}`, (t) => {
    t.is(statusLine(facts, startedAtMs + elapsedMs).text, `Up ${text}`);
  });
}

for (const [more, text] of [
  [{ state: "paused", health: "healthy" }, "Up 5 seconds (Paused)"],
  [{ health: "healthy" }, "Up 5 seconds (healthy)"],
  [{ health: "unhealthy" }, "Up 5 seconds (unhealthy)"],
  [{ health: "starting" }, "Up 5 seconds (health: starting)"],
  [{ state: "exited", exitCode: 137 }, "Exited (137) 5 seconds ago"],
  [{ state: "restarting", exitCode: 1 }, "Restarting (1) 5 seconds ago"],
  [{ state: "created", startedAtMs: undefined }, "Created"],
  [{ state: "dead" }, "Dead"],
  [{ state: "removing" }, "Removal In Progress"],
] as const) {
  test(text, (t) => t.is(statusLine({ ...facts, ...more }, startedAtMs + 5 * second).text, text));
}

test("a line stays valid until its stated time, and not longer", (t) => {
  for (let atMs = startedAtMs; atMs < startedAtMs + 3 * 365 * day;) {
    const { text, validUntilMs } = statusLine(facts, atMs);
    t.true(validUntilMs > atMs);
    t.is(statusLine(facts, validUntilMs - 1).text, text);
    atMs = validUntilMs + Math.floor((validUntilMs - atMs) * Math.min(20, (atMs - startedAtMs) / hour));
  }
});
