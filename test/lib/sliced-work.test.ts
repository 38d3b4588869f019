import test from "ava";
import { SlicedWork } from "../../src/lib/sliced-work.ts";

/** A clock that a step of work advances by 1 ms. */
function prepare(budgetMs: number) {
  const done: string[] = [];
  const errors: unknown[] = [];
  let nowMs = 0;
  const sliced = new SlicedWork({
    budgetMs,
    monotonicMs: () => nowMs,
    onError: (error) => errors.push(error),
  });
  function* work(name: string, steps: number): Generator<undefined, void> {
    for (let step = 1; step <= steps; step += 1) {
      nowMs += 1;
      done.push(`${name}${step}`);
      yield;
    }
  }
  return { done, errors, sliced, work };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("the first slice of work runs at once, the rest in later turns of the event loop", async (t) => {
  const { done, sliced, work } = prepare(3);
  sliced.add(work("a", 2));
  t.deepEqual(done, ["a1", "a2"]);
  t.false(sliced.isBusy);
  sliced.add(work("b", 5));
  sliced.add(work("c", 1));
  t.deepEqual(done.slice(2), ["b1", "b2", "b3"]);
  t.is(sliced.size, 2);
  await turn();
  t.deepEqual(done.slice(5), ["b4", "b5", "c1"]);
  await turn();
  t.false(sliced.isBusy);
});

test("work that throws is dropped, and the next work runs", (t) => {
  const { done, errors, sliced, work } = prepare(10);
  sliced.add(
    (function* () {
      yield;
      throw new Error("no");
    })(),
  );
  sliced.add(work("a", 1));
  t.deepEqual(done, ["a1"]);
  t.like(errors, [{ message: "no" }]);
});

test("work that adds work does not run it within itself", (t) => {
  const { done, sliced, work } = prepare(10);
  sliced.add(
    (function* () {
      sliced.add(work("inner", 1));
      done.push("outer");
      yield;
    })(),
  );
  t.deepEqual(done, ["outer", "inner1"]);
});

test("no work runs after a dispose", async (t) => {
  const { done, sliced, work } = prepare(1);
  sliced.add(work("a", 3));
  sliced[Symbol.dispose]();
  await turn();
  t.deepEqual(done, ["a1"]);
});
