/** The order of waiting work: users take turns, and requests for the same result share one. */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { BodyScheduler } from "../../src/lib/body-scheduler.ts";
import { CoalescedRequests } from "../../src/lib/coalesced-requests.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { SlicedWork } from "../../src/lib/sliced-work.ts";

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

test("one user's large bodies are read one at a time and do not delay other users", async (t) => {
  const bodies = new BodyScheduler(new FairQueue());
  const [first, second, third, other] = ["a", "a", "a", "b"].map((name) => bodies.open(name));
  t.is(first!.large(), undefined);
  t.is(first!.large(), undefined, "it is large once");
  const order: string[] = [];
  const waiting = [second, third].map(async (body, index) => {
    await body!.large();
    order.push(["second", "third"][index]!);
  });
  t.is(other!.large(), undefined);
  await nextTurn();
  t.deepEqual(order, []);
  // A body that is disposed while it waits is skipped.
  second![Symbol.dispose]();
  first![Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(order, ["second", "third"]);
  third![Symbol.dispose]();
  t.is(bodies.open("a").large(), undefined, "nobody is left");
});

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

/** Batches that run until the test ends them, and return their requests. */
function heldBatches() {
  const begun: { questions: readonly string[]; signal: AbortSignal; end: () => void }[] = [];
  const requests = new CoalescedRequests(async (questions: readonly string[], signal) => {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    begun.push({ questions, signal, end: () => resolve(undefined) });
    await promise;
    return questions.join(" ");
  });
  return { begun, requests };
}

test("one batch runs at a time, for all requests since the previous one started", async (t) => {
  const { begun, requests } = heldBatches();
  const first = [requests.request("a"), requests.request("b")];
  await nextTurn();
  const second = [requests.request("c"), requests.request("d")];
  await nextTurn();
  t.is(begun.length, 1);
  begun[0]!.end();
  t.deepEqual(await Promise.all(first), ["a b", "a b"]);
  await nextTurn();
  begun[1]!.end();
  t.deepEqual(await Promise.all(second), ["c d", "c d"]);
  t.is(begun.length, 2);
});

test("a participant can leave at once, and the last one to leave aborts the batch", async (t) => {
  const { begun, requests } = heldBatches();
  const [one, other, late] = [new AbortController(), new AbortController(), new AbortController()];
  const leaving = requests.request("a", one.signal);
  const staying = requests.request("b", other.signal);
  await nextTurn();
  one.abort(new Error("one has left"));
  await t.throwsAsync(leaving, { message: "one has left" });
  t.false(begun[0]!.signal.aborted);
  other.abort(new Error("the other has left"));
  await t.throwsAsync(staying, { message: "the other has left" });
  t.true(begun[0]!.signal.aborted);

  const waiting = requests.request("c", late.signal);
  late.abort(new Error("too late"));
  await t.throwsAsync(waiting, { message: "too late" });
  await t.throwsAsync(requests.request("d", late.signal), { message: "too late" });
  const last = requests.request("e");
  await nextTurn();
  t.is(begun.length, 1, "the next batch waits until the work has ended");
  begun[0]!.end();
  await nextTurn();
  t.deepEqual(begun[1]!.questions, ["e"]);
  begun[1]!.end();
  t.is(await last, "e");
});

test("a batch without participants does no work", async (t) => {
  const { begun, requests } = heldBatches();
  const leaver = new AbortController();
  const first = requests.request("a");
  await nextTurn();
  const left = requests.request("b", leaver.signal);
  leaver.abort(new Error("left"));
  await t.throwsAsync(left, { message: "left" });
  begun[0]!.end();
  await first;
  await nextTurn();
  t.is(begun.length, 1);
  const next = requests.request("c");
  await nextTurn();
  begun[1]!.end();
  t.is(await next, "c");
});

test("all participants get an error, and the next batch starts after it", async (t) => {
  let rounds = 0;
  const failing = new CoalescedRequests(async () => {
    rounds++;
    if (rounds === 1) throw new Error("no luck");
    return "luck";
  });
  for (const result of await Promise.allSettled([failing.request("a"), failing.request("b")])) {
    t.like(result, { status: "rejected", reason: { message: "no luck" } });
  }
  t.is(await failing.request("c"), "luck");
});
