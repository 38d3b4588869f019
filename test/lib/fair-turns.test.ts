import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { FairTurns } from "../../src/lib/fair-turns.ts";

/** Turns over a clock that the test sets. */
function turnsAt(): { turns: FairTurns; done: string[]; work: (name: string, costMs?: number) => void } {
  let nowMs = 0;
  const done: string[] = [];
  const turns = new FairTurns(() => nowMs);
  const work = (name: string, costMs = 0): void =>
    turns.run(name, () => {
      done.push(name);
      nowMs += costMs;
    });
  return { turns, done, work };
}

test("a little work is done as it comes", (t) => {
  const { done, work } = turnsAt();
  for (const name of ["a", "b", "a"]) work(name);
  t.deepEqual(done, ["a", "b", "a"]);
});

test("what comes when the turn has had enough waits; those who wait take turns, each in its order", async (t) => {
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

test("nobody passes those who wait, and all is as before when none is left", async (t) => {
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
