import test from "ava";
import { setTimeout as sleep } from "node:timers/promises";
import { TaskError, TaskThread } from "../../src/lib/task-thread.ts";

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
  t.is(await thread.run("a", {}), "done");
  const error = await t.throwsAsync(thread.run("a", { waitMs: 50_000 }), { instanceOf: TaskError });
  t.is(error.why, "starved");
  await sleep(0);
  t.is(await thread.run("a", {}), "done");
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
