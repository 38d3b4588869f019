/** Limits of concurrent runs: thousands in total, root's separate, and no user gets all of the users' slots. */
import test from "ava";
import { UserLimiter } from "../../src/lib/user-limiter.ts";
import { runBounds } from "../../src/scheduler/runs/runner.ts";

/** Takes all free slots of an owner; returns their number. */
function fill(room: UserLimiter, ownerUid: number): number {
  let taken = 0;
  for (; room.isAvailable(ownerUid); taken++) room.tryAcquire(ownerUid);
  return taken;
}

test("a user, all users together and root each have slots for a thousand runs and more", (t) => {
  const room = new UserLimiter("runs", (uid) => uid === 0, runBounds);
  t.is(fill(room, 1_001), 1_000);
  t.is(room.tryAcquire(1_001), undefined);
  t.is(room.reachedLimit(1_001), "1000 runs of yours are running");
  t.is(fill(room, 1_002), 1_000);
  t.is(fill(room, 1_003), 1_000);
  t.is(fill(room, 1_004), 10, "3,000 of all users, and 10 of each who has fewer");
  t.is(room.reachedLimit(1_004), "3000 runs of users are running");
  t.is(fill(room, 0), 2_000);
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
