import test from "ava";
import { setTimeout as sleep } from "node:timers/promises";
import { TaskError, TaskThread } from "../../src/lib/task-thread.ts";

/** Computes for, or waits for, so many milliseconds, and answers. */
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

test("a task that waits longer than it may compute is done, as on a busy machine", async (t) => {
  using thread = createThread(60_000);
  t.is(await thread.run("a", {}), "done");
  t.is(await thread.run("a", { waitMs: 700 }), "done");
  // What earlier tasks took is theirs.
  for (let round = 0; round < 4; round++) t.is(await thread.run("a", { computeMs: 120 }), "done");
});

test("one that computes longer than it may is ended, before its wait is over", async (t) => {
  using thread = createThread(60_000);
  t.is(await thread.run("a", {}), "done");
  const error = await t.throwsAsync(thread.run("a", { computeMs: 50_000 }), { instanceOf: TaskError });
  t.is(error.why, "too_slow");
  t.is(await thread.run("a", {}), "done");
});

test("one that only waits is ended as well, and that is not told as its doing", async (t) => {
  using thread = createThread(400);
  t.is(await thread.run("a", {}), "done");
  const error = await t.throwsAsync(thread.run("a", { waitMs: 50_000 }), { instanceOf: TaskError });
  t.is(error.why, "starved");
  await sleep(0);
  t.is(await thread.run("a", {}), "done");
});
