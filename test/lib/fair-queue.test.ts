import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { FairQueue } from "../../src/lib/fair-queue.ts";

/** A scheduler with a fake clock. */
function turnsAt(): { turns: FairQueue; done: string[]; work: (name: string, costMs?: number) => void } {
  let nowMs = 0;
  const done: string[] = [];
  const turns = new FairQueue(() => nowMs);
  const work = (name: string, costMs = 0): void =>
    turns.run(name, () => {
      done.push(name);
      nowMs += costMs;
    });
  return { turns, done, work };
}

test("a little work runs at once", (t) => {
  const { done, work } = turnsAt();
  for (const name of ["a", "b", "a"]) work(name);
  t.deepEqual(done, ["a", "b", "a"]);
});

test("work beyond a full turn waits, and users take turns, each in order", async (t) => {
  const { turns, done, work } = turnsAt();
  work("a", 10);
  for (let n = 0; n < 3; n++) work("a");
  work("b");
  work("root");
  t.deepEqual(done, ["a"]);
  t.is(turns.waitingOf("a"), 3);
  const perTurn: number[] = [];
  for (let before = done.length; done.length < 6; before = done.length) {
    await nextTurn();
    if (done.length > before) perTurn.push(done.length - before);
  }
  t.deepEqual(done, ["a", "a", "b", "root", "a", "a"]);
  t.deepEqual(perTurn, [1, 1, 1, 1, 1], "one piece in a turn of the loop");
  t.is(turns.waitingOf("a"), 0);
});

test("new work does not overtake waiting work, and runs at once again when none waits", async (t) => {
  const { turns, done, work } = turnsAt();
  work("a", 10);
  work("a");
  const mine = turns.wait("b");
  t.truthy(mine);
  await mine;
  t.deepEqual(done, ["a", "a"]);
  await nextTurn();
  await nextTurn();
  t.is(turns.wait("b"), undefined);
});
