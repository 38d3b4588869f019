/** Limits of concurrent work: per key with reserved slots, and of runs per user. */
import test from "ava";
import { Limiter, type LimiterOptions } from "../../src/lib/limiter.ts";
import { UserLimiter } from "../../src/lib/user-limiter.ts";
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

// Limits of concurrent runs: thousands in total, root's separate, and no user gets all of the users' slots.

/** Takes all free slots of an owner; returns their number. */
function fillRuns(room: UserLimiter, ownerUid: number): number {
  let taken = 0;
  for (; room.isAvailable(ownerUid); taken++) room.tryAcquire(ownerUid);
  return taken;
}

test("a user, all users together and root each have slots for a thousand runs and more", (t) => {
  const room = new UserLimiter("runs", (uid) => uid === 0, runBounds);
  t.is(fillRuns(room, 1_001), 1_000);
  t.is(room.tryAcquire(1_001), undefined);
  t.is(room.reachedLimit(1_001), "1000 runs of yours are running");
  t.is(fillRuns(room, 1_002), 1_000);
  t.is(fillRuns(room, 1_003), 1_000);
  t.is(fillRuns(room, 1_004), 10, "3,000 of all users, and 10 of each who has fewer");
  t.is(room.reachedLimit(1_004), "3000 runs of users are running");
  t.is(fillRuns(room, 0), 2_000);
});

test("64 users with ten runs each leave free slots for everybody", (t) => {
  const room = new UserLimiter("runs", (uid) => uid === 0, runBounds);
  for (let uid = 1_000; uid < 1_064; uid++) for (let run = 0; run < 10; run++) room.tryAcquire(uid);
  for (let uid = 0; uid < 1_100; uid += 50) t.true(room.isAvailable(uid));
});

test("a waiter that leaves gets no slot", async (t) => {
  const room = new UserLimiter("runs", () => false, { root: 1, users: 1, perUser: 1 });
  const first = await room.acquire(1_001);
  const leaver = new AbortController();
  const left = room.acquire(1_001, leaver.signal);
  const behind = room.acquire(1_002);
  t.is(room.waitingOf(1_001), 1);
  leaver.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  t.is(room.waitingOf(1_001), 0);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  const second = await behind;
  t.is(room.tryAcquire(1_001), undefined, "the slot belongs to the other");
  second[Symbol.dispose]();
  t.true(room.isAvailable(1_001));
});

for (const [first, order] of [
  [undefined, ["a1", "b1", "a2", "b2", "a3", "b3"]],
  ["newest", ["a3", "b3", "a2", "b2", "a1", "b1"]],
] as const) {
  test(`users take turns, and each user's ${first ?? "oldest"} waiter is first`, async (t) => {
    const bounds = { root: 1, users: 1, perUser: 1, ...(first !== undefined && { first }) };
    const room = new UserLimiter("starts", () => false, bounds);
    const held = await room.acquire(1_000);
    const begun: string[] = [];
    const ends: Promise<void>[] = [];
    for (const turn of [1, 2, 3]) {
      for (const [uid, name] of [
        [1_001, "a"],
        [1_002, "b"],
      ] as const) {
        ends.push(
          room.acquire(uid).then((slot) => {
            begun.push(`${name}${turn}`);
            slot[Symbol.dispose]();
          }),
        );
      }
    }
    held[Symbol.dispose]();
    await Promise.all(ends);
    t.deepEqual(begun, order);
    t.true(room.isAvailable(1_001));
  });
}
