/** Runs of jobs, and their output. */
import assert from "node:assert/strict";
import { setImmediate as nextTurn } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { SvcError } from "../../../src/errors.ts";
import { onShareOf, shareOwner } from "../../../src/lib/share-owner.ts";
import type { Action } from "../../../src/scheduler/actions/action.ts";
import { CappedOutput, capText, outputCapBytes } from "../../../src/scheduler/runs/capped-output.ts";
import { OutputWriter } from "../../../src/scheduler/runs/output-writer.ts";
import type { Run } from "../../../src/scheduler/runs/run.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { openRunWorld, untilAborted, type RunWorld } from "../support/run-world.ts";
import { newestRun } from "../support/world.ts";

// Runs from the first record to the last, for all kinds of actions.

const manual = { trigger: "manual", attempt: 1 } as const;
const listening = (): AbortSignal => new AbortController().signal;

/** Starts a run and waits for its end; the record must be equal. */
async function runOnce(t: ExecutionContext, act: Action): Promise<{ run: Run; logged: string[] }> {
  await using world = await openRunWorld(act);
  const job = await world.addJob("j", { timeoutSecs: 5 });
  const { started, run } = await world.runner.start(job, manual);
  t.true(started);
  const ended = await world.runner.untilEnded(run.id);
  assert.ok(ended);
  t.deepEqual(world.world.log.get(run.id)?.outcome, ended.outcome);
  t.false(world.runner.isRunning(job));
  return { run: ended, logged: world.logged };
}

test("an action's output and result are recorded", async (t) => {
  const { run } = await runOnce(t, (_job, { write }) => {
    write("one\n");
    write(Buffer.from("two\n"));
    return Promise.resolve({ exitCode: 0, httpStatus: 201 });
  });
  t.deepEqual(run.outcome, {
    status: "SUCCEEDED",
    exitCode: 0,
    httpStatus: 201,
    output: "one\ntwo\n",
    error: "",
    truncated: false,
  });
});

test("a run uses its owner's share of the daemon, however it was started", async (t) => {
  const shares = new Map<string, number>();
  await using world = await openRunWorld(({ id }) => {
    shares.set(id, shareOwner());
    return Promise.resolve({});
  });
  const jobs = [await world.addJob("root", {}, 0), await world.addJob("ann", {}, 1001)];
  // A timer belongs to nobody, and an event to the owner of its app.
  for (const starter of [undefined, 1002]) {
    shares.clear();
    for (const job of jobs) {
      const start = (): Promise<{ run: Run }> => world.runner.start(job, manual);
      const { run } = await (starter === undefined ? start() : onShareOf(starter, start));
      await world.runner.untilEnded(run.id);
    }
    t.deepEqual(Object.fromEntries(shares), { root: 0, ann: 1001 }, String(starter));
  }
});

test("a user's running jobs store their output one after another, beside those of others", async (t) => {
  await using world = await openRunWorld(async (_job, work) => {
    work.write("one\n");
    return untilAborted(work);
  });
  const waiting: (() => void)[] = [];
  world.world.log.storeOutput = () => new Promise((resolve) => waiting.push(resolve));
  for (const [id, ownerUid] of Object.entries({ a: 1001, b: 1001, c: 1001, d: 1002 }))
    await world.runner.start(await world.addJob(id, {}, ownerUid), manual);
  await nextTurn();
  world.clock.pass(1_000);
  for (const [written, expected] of [2, 3, 3, 4].entries()) {
    await nextTurn();
    t.is(waiting.length, expected, `${written} are written`);
    waiting[written]?.();
  }
});

test("an interrupted run has its output so far", async (t) => {
  await using world = await openRunWorld(async (_job, work) => {
    work.write("one\n");
    return untilAborted(work);
  });
  const { log, store } = world.world;
  const job = await world.addJob("j");
  const { run } = await world.runner.start(job, manual);
  await eventually(() => {
    world.clock.pass(1_000);
    const kept = store.get<{ output: string }>("SELECT output FROM run_outputs WHERE run = ?", run.id);
    assert.equal(kept?.output, "one\n");
  });
  t.is(log.get(run.id)?.outcome, undefined);
  // No process has these start ticks, so the run's process counts as dead.
  await store.write([{ sql: "UPDATE runs SET start_ticks = 1 WHERE id = ?", params: [run.id], changes: 1 }]);
  await log.recover();
  t.like(log.get(run.id)?.outcome, { status: "INTERRUPTED", output: "one\n" });
});

test("output is written to disk at most once per second", async (t) => {
  const clock = new FakeClock("2026-01-01T00:00:00Z");
  const writes = { count: 0 };
  {
    using kept = new OutputWriter(clock, () => {
      writes.count += 1;
      return nextTurn();
    });
    for (let at = 0; at < 30; at += 1) {
      kept.change();
      clock.pass(100);
      await nextTurn();
      await nextTurn();
    }
    t.true(writes.count >= 2 && writes.count <= 3, `${writes.count} writes in 3 s`);
    kept.change();
  }
  const { count } = writes;
  clock.pass(5_000);
  await nextTurn();
  t.is(writes.count, count);
});

test("an action's error makes a failed run", async (t) => {
  const { run, logged } = await runOnce(t, () =>
    Promise.resolve({ exitCode: 3, error: "it exited with status 3" }),
  );
  t.like(run.outcome, { status: "FAILED", exitCode: 3, error: "it exited with status 3" });
  t.deepEqual(logged, []);
});

test("an SvcError is the run's error", async (t) => {
  const { run, logged } = await runOnce(t, () => Promise.reject(new SvcError("not_found", 'no app "x"')));
  t.like(run.outcome, { status: "FAILED", error: 'no app "x"' });
  t.deepEqual(logged, []);
});

for (const [what, act] of [
  ["rejects", () => Promise.reject(new TypeError("secret internals"))],
  [
    "throws",
    () => {
      throw new TypeError("secret internals");
    },
  ],
] as const) {
  test(`a defect that ${what} fails the run, is logged, and is not shown`, async (t) => {
    const { run, logged } = await runOnce(t, act);
    t.like(run.outcome, { status: "FAILED" });
    t.notRegex(run.outcome?.error ?? "", /internals/);
    t.deepEqual(logged, ["unexpected error in a run"]);
  });
}

test("output and error are capped at 64 KiB each", async (t) => {
  const { run } = await runOnce(t, (_job, { write }) => {
    for (let line = 0; line < 20_000; line += 1) write(`line ${line}\n`);
    return Promise.resolve({ error: "e".repeat(100_000) });
  });
  t.true(run.outcome?.truncated);
  for (const text of [run.outcome?.output ?? "", run.outcome?.error ?? ""]) {
    t.true(text.length > 65_000 && Buffer.byteLength(text) <= 65_536);
    t.regex(text, /bytes omitted/);
  }
});

test("at its timeout a run is aborted and TIMED_OUT", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work));
  const { run } = await world.runner.start(await world.addJob("j", { timeoutSecs: 5 }), manual);
  const ended = world.runner.untilEnded(run.id);
  await turnEventLoop();
  world.clock.pass(4_999);
  await turnEventLoop();
  t.is(world.world.log.get(run.id)?.outcome, undefined);
  world.clock.pass(1);
  t.like((await ended)?.outcome, {
    status: "TIMED_OUT",
    error: "the run took longer than its timeout of 5 s",
  });
});

test("an action that finishes although it was aborted has succeeded", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work).catch(() => ({ exitCode: 0 })));
  const { run } = await world.runner.start(await world.addJob("j"), manual);
  await turnEventLoop();
  t.is((await world.runner.cancel(run.id)).outcome?.status, "SUCCEEDED");
});

test("canceling returns the finished run, also before its action started", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work));
  const { run } = await world.runner.start(await world.addJob("j"), manual);
  const canceled = await world.runner.cancel(run.id);
  t.like(canceled.outcome, { status: "CANCELED", error: "the run was canceled" });
  t.deepEqual(world.world.log.get(run.id)?.outcome, canceled.outcome);
  const error = await t.throwsAsync<SvcError>(world.runner.cancel(run.id), { instanceOf: SvcError });
  t.is(error.code, "failed_precondition");
});

test("a job has one run at a time; other jobs run in parallel", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work));
  const [a, b] = [await world.addJob("a"), await world.addJob("b")];
  const first = await world.runner.start(a, manual);
  t.deepEqual(await world.runner.start(a, manual), { started: false, run: first.run });
  t.true((await world.runner.start(b, manual)).started);
  await world.runner.cancel(first.run.id);
  t.true((await world.runner.start(a, manual)).started);
});

test("a run whose job is removed is canceled", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work));
  const job = await world.addJob("j");
  const { run } = await world.runner.start(job, manual);
  const ended = world.runner.untilEnded(run.id);
  await world.remove(job);
  world.runner.endOrphans();
  t.like((await ended)?.outcome, { status: "CANCELED", error: "the run was canceled: its job was removed" });
});

test("no user's runs prevent those of others or of root", async (t) => {
  const bounds = { total: 5, reserved: 1, perKey: 3 };
  await using world = await openRunWorld((_job, work) => untilAborted(work), bounds);
  const [greedy, other] = [1001, 1002];
  for (let index = 0; index < 3; index += 1) {
    const job = await world.addJob(`j${index}`, {}, greedy);
    t.true((await world.runner.start(job, manual)).started);
  }
  const last = await world.addJob("last", {}, greedy);
  const error = await t.throwsAsync<SvcError>(world.runner.start(last, manual), { instanceOf: SvcError });
  t.like(error, { reason: "too_many", message: "3 runs of yours are running; try again later" });
  t.true((await world.runner.start(await world.addJob("j", {}, other), manual)).started);
  t.true((await world.runner.start(await world.addJob("j"), manual)).started);
  const running = world.world.log.runningOf({ ownerUid: greedy, id: "j0" });
  await world.runner.cancel(running?.id ?? 0);
  t.true((await world.runner.start(last, manual)).started);
});

test("a run continues when its job is edited, and ends before another job with the same key may start", async (t) => {
  const events: string[] = [];
  const mayEnd = Promise.withResolvers<undefined>();
  await using world = await openRunWorld(async ({ comment }, { signal }) => {
    events.push(`${comment} begins`);
    signal.addEventListener("abort", () => events.push(`${comment} is stopped`));
    if (comment === "old") await mayEnd.promise;
    events.push(`${comment} ends`);
    return signal.aborted ? { error: "aborted" } : {};
  });
  const { runner } = world;
  const old = await world.addJob("j", { comment: "old" });
  const first = runner.untilEnded((await runner.start(old, manual)).run.id);
  await world.edit(old, { comment: "edited" });
  runner.endOrphans();
  await eventually(() => assert.deepEqual(events, ["old begins"]));
  t.false((await runner.start(old, manual)).started);
  t.deepEqual(events, ["old begins"]);

  await world.remove(old);
  const fresh = await world.addJob("j", { comment: "new" });
  runner.endOrphans();
  const { started, run } = await runner.start(fresh, manual);
  const second = runner.untilEnded(run.id);
  t.true(started);
  await nextTurn();
  t.deepEqual(events, ["old begins", "old is stopped"]);
  mayEnd.resolve(undefined);
  t.like((await first)?.outcome, { status: "CANCELED", error: "the run was canceled: its job was removed" });
  t.true(runner.isRunning(fresh), "the end of the old one is not that of the new one");
  t.like((await second)?.outcome, { status: "SUCCEEDED" });
  t.deepEqual(events, ["old begins", "old is stopped", "old ends", "new begins", "new ends"]);
  t.false(runner.isRunning(fresh));
});

test("a stop cancels and records active runs, and starts none any more", async (t) => {
  const world = await openRunWorld((_job, work) => untilAborted(work));
  const job = await world.addJob("j");
  const { run } = await world.runner.start(job, manual);
  await world.runner[Symbol.asyncDispose]();
  t.like(world.world.log.get(run.id)?.outcome, {
    status: "CANCELED",
    error: "the run was canceled: the daemon stopped",
  });
  const error = await t.throwsAsync<SvcError>(world.runner.start(job, manual), { instanceOf: SvcError });
  t.is(error.code, "unavailable");
  await world[Symbol.asyncDispose]();
});

test("a follower from the start misses nothing; a later one gets later output", async (t) => {
  const go = Promise.withResolvers<undefined>();
  await using world = await openRunWorld(async (_job, { write }) => {
    write("early ");
    await go.promise;
    write("late");
    return {};
  });
  const { run } = await world.runner.start(await world.addJob("j"), manual);
  const [first, stopped] = [world.runner.follow(run.id, listening()), new AbortController()];
  const left = world.runner.follow(run.id, stopped.signal);
  await turnEventLoop();
  const second = world.runner.follow(run.id, listening());
  stopped.abort();
  go.resolve(undefined);
  t.is(await textOf(first), "early late");
  t.is(await textOf(second), "late");
  t.is(await textOf(left), "early ", "it has disconnected");
  t.is(await textOf(world.runner.follow(run.id, listening())), "", "it has finished");
  t.is(await textOf(world.runner.follow(999, listening())), "", "nobody's run");
});

test("a follower that does not read blocks nothing and is not buffered without limit", async (t) => {
  await using world = await openRunWorld((_job, { write }) => {
    for (let at = 0; at < 5_000; at += 1) write("x".repeat(1_000));
    return Promise.resolve({});
  });
  const { run } = await world.runner.start(await world.addJob("j"), manual);
  const output = world.runner.follow(run.id, listening());
  t.is((await world.runner.untilEnded(run.id))?.outcome?.status, "SUCCEEDED");
  const { length } = await textOf(output);
  t.true(length > 1_000_000 && length <= 1 << 20, `${length} bytes`);
});

test("the follow-up runs after the record", async (t) => {
  let status: string | undefined;
  await using world = await openRunWorld((job) =>
    Promise.resolve({
      afterwards: () => {
        status = newestRun(world.world, job)?.outcome?.status;
        return Promise.resolve();
      },
    }),
  );
  const { run } = await world.runner.start(await world.addJob("j"), manual);
  t.is((await world.runner.untilEnded(run.id))?.outcome?.status, "SUCCEEDED");
  t.is(status, "SUCCEEDED");
});

for (const [what, act, isCanceled] of [
  ["fails", () => Promise.reject(new SvcError("unavailable", "no such command")), false],
  ["is canceled", (signal: AbortSignal) => untilAborted({ signal } as never).then(() => undefined), true],
] as const) {
  test(`a record whose follow-up ${what} is corrected`, async (t) => {
    await using world = await openRunWorld((_job, { write }) => {
      write("in a moment");
      return Promise.resolve({ afterwards: act });
    });
    const job = await world.addJob("j");
    const { run } = await world.runner.start(job, manual);
    if (isCanceled) {
      await eventually(() => assert.equal(world.runner.finishing(job)?.outcome?.status, "SUCCEEDED"));
      t.like(await world.runner.start(job, manual), { started: false, run: { id: run.id } });
    }
    const ended = isCanceled ? await world.runner.cancel(run.id) : await world.runner.untilEnded(run.id);
    const [status, error] = isCanceled ? ["CANCELED", "the run was canceled"] : ["FAILED", "no such command"];
    t.like(ended?.outcome, { status, error, output: "in a moment" });
    t.like(world.world.log.get(run.id)?.outcome, { status, error, output: "in a moment" });
  });
}

test("a record that the store rejects is written as soon as possible; until then the job is active", async (t) => {
  await using world = await openRunWorld(() => Promise.resolve({}));
  const { log } = world.world;
  const close = log.close.bind(log);
  let refusals = 2;
  log.close = (run, outcome) =>
    refusals-- > 0 ? Promise.reject(new SvcError("unavailable", "busy")) : close(run, outcome);
  const job = await world.addJob("j");
  const { run } = await world.runner.start(job, manual);
  await untilRejected(world, 1);
  t.true(world.runner.isRunning(job));
  world.clock.pass(1_000);
  await untilRejected(world, 2);
  world.clock.pass(2_000);
  t.is((await world.runner.untilEnded(run.id))?.outcome?.status, "SUCCEEDED");
  t.is(log.get(run.id)?.outcome?.status, "SUCCEEDED");
});

function untilRejected({ logged }: RunWorld, times: number): Promise<void> {
  return eventually(async () => {
    assert.equal(logged.length, times);
    await turnEventLoop();
  });
}

/** Lets the event loop turn. */
async function turnEventLoop(): Promise<void> {
  for (let time = 0; time < 3; time += 1) await new Promise((resolve) => setImmediate(resolve));
}

async function textOf(output: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(output)).toString();
}

function cap(bytes: Uint8Array, chunkBytes: number) {
  const output = new CappedOutput();
  for (let at = 0; at < bytes.length; at += chunkBytes) output.push(bytes.subarray(at, at + chunkBytes));
  return output.read();
}

for (const length of [0, 1, outputCapBytes / 2, outputCapBytes - 1, outputCapBytes]) {
  test(`${length} bytes are retained completely`, (t) => {
    const text = "x".repeat(length);
    for (const chunkBytes of [1000, outputCapBytes])
      t.deepEqual(cap(Buffer.from(text), chunkBytes), { text, isTruncated: false });
    t.deepEqual(capText(text), { text, isTruncated: false });
  });
}

test("longer output keeps its head and tail with a marker that states how much is missing", (t) => {
  const lines = Array.from({ length: 50_000 }, (_, at) => `line ${at}\n`).join("");
  for (const { text, isTruncated } of [cap(Buffer.from(lines), 777), capText(lines)]) {
    t.true(isTruncated);
    t.true(Buffer.byteLength(text) <= outputCapBytes);
    const [, head = "", count, tail = ""] = /^([^]*)\n\[… (\d+) bytes omitted …\]\n([^]*)$/.exec(text) ?? [];
    t.true(lines.startsWith(head));
    t.true(lines.endsWith(tail));
    t.is(head.length + tail.length + Number(count), lines.length);
    t.true(head.length > 32_000 && tail.length > 32_000);
  }
});

test("the result is UTF-8 within the limit, for any input and chunk sizes", (t) => {
  const piece = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 20 }).map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  );
  fc.assert(
    fc.property(
      piece,
      fc.integer({ min: 1, max: 200_000 }),
      fc.integer({ min: 1, max: 70_000 }),
      (unit, length, chunk) => {
        const bytes = Buffer.alloc(length, unit.length === 0 ? "é" : unit);
        const { text, isTruncated } = cap(bytes, chunk);
        t.true(Buffer.byteLength(text) <= outputCapBytes);
        t.true(text.isWellFormed());
        const whole = bytes.toString();
        if (!isTruncated) t.is(text, whole);
        // A character is never split if the source was complete.
        if (!whole.includes("\ufffd")) t.false(text.includes("\ufffd"));
      },
    ),
    { numRuns: 200 },
  );
});

test("bytes that are not UTF-8 stay within the limit, too, although they grow", (t) => {
  const { text, isTruncated } = cap(Buffer.alloc(60_000, 0xff), 4_096);
  t.true(isTruncated);
  t.true(Buffer.byteLength(text) <= outputCapBytes);
});
