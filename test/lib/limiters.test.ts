/** Limits of concurrent work: per key with reserved and guaranteed slots, and of runs per user. */
import test from "ava";
import { Limiter, type LimiterOptions } from "../../src/lib/limiter.ts";
import { runBounds } from "../../src/scheduler/runs/runner.ts";

const root = "root";

function limiter(bounds: Partial<LimiterOptions<string>> = {}) {
  return new Limiter<string>({
    ...{ total: 4, perKey: 2, reserved: 1, maxWaiting: 2, isReserved: (key) => key === root },
    tooMany: ({ running, waiting }) => new Error(`${running} running, ${waiting} waiting`),
    ...bounds,
  });
}

/** Takes as many slots of the key as available at once. */
function fill(of: Limiter<string>, key: string): Disposable[] {
  const slots: Disposable[] = [];
  for (let slot = of.tryAcquire(key); slot !== undefined; slot = of.tryAcquire(key)) slots.push(slot);
  return slots;
}

test("a key gets no more slots than perKey", (t) => {
  const slots = limiter({ total: 100 });
  t.is(fill(slots, "ann").length, 2);
  t.is(fill(slots, "ben").length, 2);
});

test("other keys never take the reserved slots", (t) => {
  const slots = limiter();
  t.deepEqual(
    ["ann", "ben", "cid", root].map((key) => fill(slots, key).length),
    [2, 1, 0, 1],
  );
});

test("a reserved key leaves slots for the others", (t) => {
  const slots = limiter();
  t.is(fill(slots, root).length, 3, "its reserve and one key's share of the rest");
  t.is(fill(slots, "ann").length, 1);
  t.is(slots.running, 4);
});

test("without a total each key has its own slots", (t) => {
  const slots = limiter({ total: Number.POSITIVE_INFINITY, perKey: 3, reserved: 2 });
  for (let n = 0; n < 50; n++) t.is(fill(slots, `user${n}`).length, 3);
  t.is(fill(slots, root).length, 5);
});

test("keys take turns, and one key's waiters are served in order of arrival", async (t) => {
  const slots = limiter({ total: 1, perKey: 1, reserved: 0, maxWaiting: 10 });
  const first = slots.tryAcquire("ann")!;
  const served: string[] = [];
  const wait = async (key: string, name: string): Promise<void> => {
    using _slot = await slots.acquire(key);
    served.push(name);
  };
  const waiting = [
    ...["ann1", "ann2", "ann3"].map((name) => wait("ann", name)),
    ...["ben1", "ben2"].map((name) => wait("ben", name)),
  ];
  first[Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(served, ["ann1", "ben1", "ann2", "ben2", "ann3"]);
  t.is(slots.running, 0);
});

test("one key's waiters never delay a key that has slots", async (t) => {
  const slots = limiter();
  fill(slots, "ann");
  slots.acquire("ann").catch(() => undefined);
  using ben = await slots.acquire("ben");
  t.truthy(ben);
});

test("too many waiters of one key are rejected, with the counts", async (t) => {
  const slots = limiter();
  fill(slots, "ann");
  const waiting = [slots.acquire("ann"), slots.acquire("ann")];
  await t.throwsAsync(slots.acquire("ann"), { message: "2 running, 2 waiting" });
  t.is(slots.waitingOf("ann"), 2);
  t.is(slots.waitingOf("ben"), 0);
  t.is(waiting.length, 2);
});

test("a waiter leaves when its signal aborts, and the next one is served", async (t) => {
  const slots = limiter({ total: 1, perKey: 1, reserved: 0 });
  const held = slots.tryAcquire("ann")!;
  const leave = new AbortController();
  const left = slots.acquire("ann", leave.signal);
  const next = slots.acquire("ann");
  leave.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  held[Symbol.dispose]();
  (await next)[Symbol.dispose]();
  await t.throwsAsync(slots.acquire("ann", AbortSignal.abort(new Error("before"))), { message: "before" });
  t.is(slots.running, 0);
});

test("disposing a slot twice frees it once", (t) => {
  const slots = limiter({ total: 2, perKey: 2, reserved: 0 });
  const [one, two] = fill(slots, "ann");
  one?.[Symbol.dispose]();
  one?.[Symbol.dispose]();
  t.is(slots.running, 1);
  t.is(fill(slots, "ann").length, 1);
  two?.[Symbol.dispose]();
});

test("a key gets its guaranteed slots while others use all", (t) => {
  const slots = limiter({ total: 4, perKey: 4, reserved: 0, guaranteed: 2 });
  t.is(fill(slots, "ann").length, 4);
  t.is(fill(slots, "ben").length, 2);
  t.is(slots.reachedLimit("ann"), "perKey");
  t.is(slots.reachedLimit("ben"), "total");
});

test("a key's newest waiter can be first", async (t) => {
  const slots = limiter({ total: 1, perKey: 1, reserved: 0, maxWaiting: 10, first: "newest" });
  const held = slots.tryAcquire("cid")!;
  const served: string[] = [];
  const waiting = ["ann1", "ben1", "ann2", "ben2"].map(async (name) => {
    using _slot = await slots.acquire(name.slice(0, 3));
    served.push(name);
  });
  held[Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(served, ["ann2", "ben2", "ann1", "ben1"]);
});

// Limits of concurrent runs: thousands in total, some only for root, and no user gets all of the users' slots.

function runLimiter() {
  return new Limiter<number>({ ...runBounds, isReserved: (uid) => uid === 0 });
}

/** Takes all free slots of an owner; returns their number. */
function fillRuns(slots: Limiter<number>, ownerUid: number): number {
  let taken = 0;
  while (slots.tryAcquire(ownerUid) !== undefined) taken++;
  return taken;
}

test("a user, all users together and root each have slots for a thousand runs and more", (t) => {
  const slots = runLimiter();
  t.is(fillRuns(slots, 1_001), 1_000);
  t.is(slots.reachedLimit(1_001), "perKey");
  t.is(fillRuns(slots, 1_002), 1_000);
  t.is(fillRuns(slots, 1_003), 1_000);
  t.is(fillRuns(slots, 1_004), 10, "3,000 of all users, and 10 of each who has fewer");
  t.is(slots.reachedLimit(1_004), "total");
  t.is(fillRuns(slots, 0), 2_000);
});

test("64 users with ten runs each leave free slots for everybody", (t) => {
  const slots = runLimiter();
  for (let uid = 1_000; uid < 1_064; uid++) for (let run = 0; run < 10; run++) slots.tryAcquire(uid);
  for (let uid = 0; uid < 1_100; uid += 50) t.is(slots.reachedLimit(uid), undefined);
});
