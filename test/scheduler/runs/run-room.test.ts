/** How many runs go at once: in the thousands, root's beside everybody else's, and nobody has all of the users'. */
import test from "ava";
import type { SvcError } from "../../../src/errors.ts";
import { RunRoom } from "../../../src/scheduler/runs/run-room.ts";

/** Takes all the room that an owner finds; how much that was. */
function fill(room: RunRoom, ownerUid: number): number {
  let taken = 0;
  for (; room.hasFor(ownerUid); taken++) room.take(ownerUid);
  return taken;
}

test("a user, the users together and root each have room for a thousand runs and more", (t) => {
  const room = new RunRoom((uid) => uid === 0);
  t.is(fill(room, 1_001), 1_000);
  t.throws<SvcError>(() => room.take(1_001), { message: /try again later/ });
  t.is(fill(room, 1_002), 1_000);
  t.is(fill(room, 1_003), 1_000);
  t.is(fill(room, 1_004), 0, "3,000 of all users");
  t.is(fill(room, 0), 2_000);
});

test("64 users with ten runs each leave room for everybody", (t) => {
  const room = new RunRoom((uid) => uid === 0);
  for (let uid = 1_000; uid < 1_064; uid++) for (let run = 0; run < 10; run++) room.take(uid);
  for (let uid = 0; uid < 1_100; uid += 50) t.true(room.hasFor(uid));
});
