/** Limits of concurrent work, and the order of waiting work. */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { BodyScheduler } from "../../src/lib/body-scheduler.ts";
import { CoalescedRequests } from "../../src/lib/coalesced-requests.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { Limiter, type LimiterOptions } from "../../src/lib/limiter.ts";
import { SlicedWork } from "../../src/lib/sliced-work.ts";
import { runBounds } from "../../src/scheduler/runs/runner.ts";
import { TaskError, TaskThread } from "../../src/lib/task-thread.ts";
import { eventually } from "../support/eventually.ts";

// Limits of concurrent work: per key with reserved and guaranteed slots, and of runs per user.

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

// The order of waiting work: users take turns, and requests for the same result share one.

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
  t.is(first!.beginLarge(), undefined);
  t.is(first!.beginLarge(), undefined, "it is large once");
  const order: string[] = [];
  const waiting = [second, third].map(async (body, index) => {
    await body!.beginLarge();
    order.push(["second", "third"][index]!);
  });
  t.is(other!.beginLarge(), undefined);
  await nextTurn();
  t.deepEqual(order, []);
  // A body that is disposed while it waits is skipped.
  second![Symbol.dispose]();
  first![Symbol.dispose]();
  await Promise.all(waiting);
  t.deepEqual(order, ["second", "third"]);
  third![Symbol.dispose]();
  t.is(bodies.open("a").beginLarge(), undefined, "nobody is left");
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

/** Computes or waits for the given milliseconds, then responds. */
const url = new URL(
  `data:text/javascript,${encodeURIComponent(`
    import { parentPort } from "node:worker_threads";
    const used = () => { const { user, system } = process.threadCpuUsage(); return (user + system) / 1000; };
    parentPort.on("message", async ({ computeMs = 0, waitMs = 0 }) => {
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      for (const until = used() + computeMs; used() < until;);
      parentPort.postMessage("done");
    });`)}`,
);

interface Task {
  readonly computeMs?: number;
  readonly waitMs?: number;
}

function createThread(waitMs?: number): TaskThread<Task, string> {
  const bounds = waitMs === undefined ? {} : { waitMs };
  return new TaskThread({ url, timeoutMs: 200, idleMs: 30_000, maxWaiting: 8, ...bounds });
}

test("a task may wait longer than its CPU time, as on a busy host", async (t) => {
  using thread = createThread(60_000);
  t.is(await thread.run("a", {}), "done");
  t.is(await thread.run("a", { waitMs: 700 }), "done");
  // The CPU time of earlier tasks does not count.
  for (let round = 0; round < 4; round++) t.is(await thread.run("a", { computeMs: 120 }), "done");
});

test("a task that exceeds its CPU time is terminated before its total time is over", async (t) => {
  using thread = createThread(60_000);
  t.is(await thread.run("a", {}), "done");
  const error = await t.throwsAsync(thread.run("a", { computeMs: 50_000 }), { instanceOf: TaskError });
  t.is(error.why, "too_slow");
  t.is(await thread.run("a", {}), "done");
});

test("a task that only waits is terminated as starved", async (t) => {
  using thread = createThread(400);
  const error = await t.throwsAsync(thread.run("a", { waitMs: 50_000 }), { instanceOf: TaskError });
  t.is(error.why, "starved");
  // On a busy host even the next start may take longer.
  await eventually(async () => t.is(await thread.run("a", {}), "done"));
});

/** Holds a thread with a task of `uid 1`, milliseconds long, and fills the queue of `uid 1`. */
function fillQueue(signal?: AbortSignal, firstMs = 500) {
  const bounds = { maxWaiting: 4, maxWaitingPerName: 2, reservedName: "uid 0" };
  const thread = new TaskThread<Task, string>({ url, timeoutMs: 60_000, idleMs: 30_000, ...bounds });
  const first = thread.run("uid 1", { waitMs: firstMs });
  const waiting = [1, 2].map(() => thread.run("uid 1", {}, { signal }));
  return { thread, first, waiting };
}

test("one user's waiting tasks leave space for another user's", async (t) => {
  const { thread, first, waiting } = fillQueue();
  using _thread = thread;
  const error = await t.throwsAsync(thread.run("uid 1", {}), { instanceOf: TaskError });
  t.is(error.why, "too_many");
  t.is(await thread.run("uid 2", {}), "done");
  t.deepEqual(await Promise.all([first, ...waiting]), ["done", "done", "done"]);
});

test("root's tasks wait only for each other, while the tasks of all users fill the queue", async (t) => {
  const leaving = new AbortController();
  const { thread, first, waiting } = fillQueue(leaving.signal, 60_000);
  using _thread = thread;
  waiting.push(...[1, 2].map(() => thread.run("uid 2", {}, { signal: leaving.signal })));
  const done = Array.from({ length: 4 }, () => thread.run("uid 0", {}));
  t.deepEqual(await Promise.all(done), ["done", "done", "done", "done"]);
  leaving.abort(new Error("the caller left"));
  for (const task of waiting) await t.throwsAsync(task, { message: "the caller left" });
  void first;
});

test("a user without waiting tasks gets one into a full queue", async (t) => {
  const { thread, first, waiting } = fillQueue();
  using _thread = thread;
  waiting.push(...[1, 2].map(() => thread.run("uid 2", {})));
  const own = thread.run("uid 3", {});
  const error = await t.throwsAsync(thread.run("uid 3", {}), { instanceOf: TaskError });
  t.is(error.why, "too_many");
  t.deepEqual(
    await Promise.all([own, first, ...waiting]),
    Array.from({ length: 6 }, () => "done"),
  );
});

test("an aborted task leaves the queue", async (t) => {
  const leaving = new AbortController();
  const { thread, first, waiting } = fillQueue(leaving.signal);
  using _thread = thread;
  leaving.abort(new Error("the caller left"));
  for (const task of waiting) await t.throwsAsync(task, { message: "the caller left" });
  const next = [1, 2].map(() => thread.run("uid 1", {}));
  t.deepEqual(await Promise.all([first, ...next]), ["done", "done", "done"]);
});
