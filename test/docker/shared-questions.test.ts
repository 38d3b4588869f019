/** Reads beside a storm of events, and beside each other: how long they wait, and how often the engine is asked. */
import test from "ava";
import { ContainerCache } from "../../src/docker/container-cache.ts";
import { ContainerSampler } from "../../src/docker/container-sampler.ts";
import type { DockerEngine } from "../../src/docker/engine.ts";
import { CachedInventory } from "../../src/docker/inventory-list.ts";
import { SvcError } from "../../src/errors.ts";

/** An engine that answers as `answer` says, and knows no container. */
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

test("a list does not wait for a storm of events to end", async (t) => {
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
  // It ends though one event comes after the other for as long as it waits.
  await cache.caughtUp(60_000);
  t.true(asked > 0);
  t.true(asked < 1_000, "it asks about what came before it alone");
  storms = false;
});

test("events that come together are one question for each container", async (t) => {
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

test("a list does not wait for a container of which the engine does not tell, nor do others", async (t) => {
  // The deadline of a read keeps no process alive.
  const alive = setTimeout(() => undefined, 60_000);
  t.teardown(() => clearTimeout(alive));
  const first = Promise.withResolvers<undefined>();
  let asked = 0;
  const cache = cacheOver(engineOf(() => (++asked === 1 ? first.promise : turn())));
  cache.onEvent(event("stuck"));
  await turn();
  cache.onEvent(event("other"));
  await cache.caughtUp(10);
  t.is(asked, 2, "another one is asked about meanwhile");
  t.true(cache.lagMs > 0);
  first.resolve(undefined);
  await cache.caughtUp(60_000);
  t.is(cache.lagMs, 0);
});

test("a list that changes all the time is one question at a time for all who read it", async (t) => {
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
  t.deepEqual((await list.read()).items, [before + 1], "what happened before it is in it");
});

test("what happens to a list while it is asked for is in the next answer", async (t) => {
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

test("twenty who ask for the use of containers share one window", async (t) => {
  let asked = 0;
  const engine = engineOf(async () => {
    asked++;
    await turn();
  });
  const sampler = new ContainerSampler({ engine, state: { containerNow: () => undefined } });
  await Promise.all(Array.from({ length: 20 }, () => sampler.sample(["a", "b"])));
  t.is(asked, 2, "each container once");
});
