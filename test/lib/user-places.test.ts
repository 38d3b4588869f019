/** How many runs go at once: in the thousands, root's beside everybody else's, and nobody has all of the users'. */
import test from "ava";
import { UserPlaces } from "../../src/lib/user-places.ts";
import { runBounds } from "../../src/scheduler/runs/runner.ts";

/** Takes all the room that an owner finds; how much that was. */
function fill(room: UserPlaces, ownerUid: number): number {
  let taken = 0;
  for (; room.hasFor(ownerUid); taken++) room.take(ownerUid);
  return taken;
}

test("a user, the users together and root each have room for a thousand runs and more", (t) => {
  const room = new UserPlaces("runs", (uid) => uid === 0, runBounds);
  t.is(fill(room, 1_001), 1_000);
  t.is(room.take(1_001), undefined);
  t.is(room.whyFull(1_001), "1000 runs of yours are running");
  t.is(fill(room, 1_002), 1_000);
  t.is(fill(room, 1_003), 1_000);
  t.is(fill(room, 1_004), 0, "3,000 of all users");
  t.is(fill(room, 0), 2_000);
});

test("64 users with ten runs each leave room for everybody", (t) => {
  const room = new UserPlaces("runs", (uid) => uid === 0, runBounds);
  for (let uid = 1_000; uid < 1_064; uid++) for (let run = 0; run < 10; run++) room.take(uid);
  for (let uid = 0; uid < 1_100; uid += 50) t.true(room.hasFor(uid));
});

test("who waits may leave, and gets no place then", async (t) => {
  const room = new UserPlaces("runs", () => false, { root: 1, users: 1, perUser: 1 });
  const first = await room.wait(1_001);
  const leaver = new AbortController();
  const left = room.wait(1_001, leaver.signal);
  const behind = room.wait(1_002);
  t.is(room.waitingOf(1_001), 1);
  leaver.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  t.is(room.waitingOf(1_001), 0);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  const second = await behind;
  t.is(room.take(1_001), undefined, "the place is the other's");
  second[Symbol.dispose]();
  t.true(room.hasFor(1_001));
});

for (const [first, order] of [
  [undefined, ["a1", "b1", "a2", "b2", "a3", "b3"]],
  ["newest", ["a3", "b3", "a2", "b2", "a1", "b1"]],
] as const) {
  test(`users take turns, and of each the ${first ?? "oldest"} goes first`, async (t) => {
    const bounds = { root: 1, users: 1, perUser: 1, ...(first !== undefined && { first }) };
    const room = new UserPlaces("starts", () => false, bounds);
    const held = await room.wait(1_000);
    const begun: string[] = [];
    const ends: Promise<void>[] = [];
    for (const turn of [1, 2, 3]) {
      for (const [uid, name] of [
        [1_001, "a"],
        [1_002, "b"],
      ] as const) {
        ends.push(
          room.wait(uid).then((place) => {
            begun.push(`${name}${turn}`);
            place[Symbol.dispose]();
          }),
        );
      }
    }
    held[Symbol.dispose]();
    await Promise.all(ends);
    t.deepEqual(begun, order);
    t.true(room.hasFor(1_001));
  });
}
