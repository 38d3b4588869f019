/** From a due job to its run: jitter, limits, skips, retries, and jobs that events fire. */
import assert from "node:assert/strict";
import test from "ava";
import { Limiter } from "../../../src/lib/limiter.ts";
import type { NodeEvent } from "../../../src/observability/events/event-log.ts";
import type { Action } from "../../../src/scheduler/actions/action.ts";
import { DueTable } from "../../../src/scheduler/clock/due-table.ts";
import { EventJobs } from "../../../src/scheduler/clock/event-jobs.ts";
import { createJitter } from "../../../src/scheduler/clock/due-jobs.ts";
import { keyText, type Job } from "../../../src/scheduler/jobs/job.ts";
import { type JobSkip, readSummaries } from "../../../src/scheduler/runs/run-summaries.ts";
import { dayMs } from "../../../src/triggers/wall-slice.ts";
import { Zones } from "../../../src/triggers/zone.ts";
import { eventually } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { job } from "../support/evaluation.ts";
import { parseTrigger } from "../support/parse-trigger.ts";
import { type RunWorld, openRunWorld, untilAborted } from "../support/run-world.ts";
import { newestRun, runningRuns } from "../support/world.ts";

// From a due job to its run: jitter, limits, skips and retries.

const fails = () => Promise.resolve({ error: "it failed" });
const [secondMs, minuteMs] = [1_000, 60_000];

/** Attempts of a job's runs so far, oldest first, once there are `count` and none is active. */
function attempts({ world, runner }: RunWorld, job: Job, count: number): Promise<number[]> {
  return eventually(() => {
    const runs = world.log.list(job).reverse();
    assert.equal(runs.filter(({ outcome }) => outcome !== undefined).length, count);
    assert.ok(!runner.isRunning(job));
    return runs.map(({ attempt }) => attempt);
  });
}

test("a due job runs, and its minute is recorded", async (t) => {
  await using world = await openRunWorld(() => Promise.resolve({}));
  const job = await world.addJob("j");
  world.due.fire(job, 60_000);
  await attempts(world, job, 1);
  t.like(newestRun(world.world, job), { trigger: "schedule", attempt: 1, scheduledAtMs: 60_000 });
});

test("a firing during the previous run is skipped and counted, whoever started that run", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work));
  const [scheduled, manual] = [await world.addJob("scheduled"), await world.addJob("manual")];
  await world.runner.start(manual, { trigger: "manual", attempt: 1 });
  for (const minute of [1, 2, 3]) {
    world.due.fire(scheduled, minute * minuteMs);
    world.due.fire(manual, minute * minuteMs);
  }
  await eventually(() => {
    world.clock.pass(secondMs);
    const counts = [scheduled, manual].map((job) => skipsOf(world, job)[0]);
    assert.deepEqual(counts, [
      { reason: "running", count: 2, lastUnix: 3 * 60 },
      { reason: "running", count: 3, lastUnix: 3 * 60 },
    ]);
  });
  t.is(world.world.log.list(scheduled).length, 1);
  t.is(world.world.log.list(manual).length, 1);
});

test("a job runs only while its owner exists, and not for another user of the uid", async (t) => {
  const names = new Map<number, string | undefined>([[1_001, "alice"]]);
  await using world = await openRunWorld(() => Promise.resolve({}), undefined, names);
  const job = await world.addJob("j", {}, 1_001);
  world.due.fire(job, minuteMs);
  await attempts(world, job, 1);
  for (const [at, name] of [undefined, "bob"].entries()) {
    names.set(1_001, name);
    world.due.fire(job, (at + 2) * minuteMs);
    await eventually(() => {
      world.clock.pass(secondMs);
      assert.deepEqual(skipsOf(world, job), [{ reason: "owner", count: at + 1, lastUnix: (at + 2) * 60 }]);
    });
    const manual = world.runner.start(job, { trigger: "manual", attempt: 1 });
    await t.throwsAsync(manual, { message: /does not run: the owner alice.* no longer exists/ });
  }
  t.is(world.world.log.list(job).length, 1);
  names.set(1_001, "alice");
  world.due.fire(job, 4 * minuteMs);
  await attempts(world, job, 2);
  t.deepEqual(world.logged, []);
});

test("jitter delays the start, and changes of the job in between are respected", async (t) => {
  await using world = await openRunWorld(() => Promise.resolve({}));
  const names = ["kept", "disabled", "removed", "edited"];
  const jobs = await Promise.all(names.map((name) => world.addJob(name, { jitterSecs: 10 })));
  const [kept, disabled, removed, edited] = jobs as [Job, Job, Job, Job];
  for (const job of jobs) world.due.fire(job, minuteMs);
  world.clock.pass(4_999);
  await world.edit(disabled, { enabled: false });
  await world.edit(edited, { timeoutSecs: 7 });
  await world.remove(removed);
  t.deepEqual(await runningRuns(world.world), []);
  t.is(newestRun(world.world, kept), undefined);
  world.clock.pass(1);
  await attempts(world, kept, 1);
  await attempts(world, edited, 1);
  t.is(newestRun(world.world, disabled), undefined);
  t.deepEqual(world.logged, []);
});

test("a start that another daemon delayed by jitter happens at its time, and never if it is late or in progress", async (t) => {
  await using world = await openRunWorld((job, work) =>
    job.id === "running" ? untilAborted(work) : Promise.resolve({}),
  );
  const names = ["waited", "late", "running", "waiting", "disabled"];
  const jobs = await Promise.all(names.map((name) => world.addJob(name, { jitterSecs: 60 })));
  const [waited, late, running, waiting, disabled] = jobs as [Job, Job, Job, Job, Job];
  await world.runner.start(running, { trigger: "manual", attempt: 1 });
  const nowMs = world.clock.nowMs();
  world.due.fire(waiting, nowMs - 1);
  for (const job of [waited, running, waiting, disabled]) world.due.resumeStart(job, nowMs - 20 * secondMs);
  world.due.resumeStart(late, nowMs - 30 * secondMs);
  await world.edit(disabled, { enabled: false });
  world.clock.pass(10 * secondMs - 1);
  await untilRecorded(world);
  t.deepEqual(
    jobs.map((job) => world.world.log.list(job).length),
    [0, 0, 1, 0, 0],
  );
  world.clock.pass(1);
  await attempts(world, waited, 1);
  t.is(newestRun(world.world, waited)?.scheduledAtMs, nowMs - 20 * secondMs);
  world.clock.pass(minuteMs);
  await attempts(world, waiting, 1);
  t.is(newestRun(world.world, waiting)?.scheduledAtMs, nowMs - 1);
  for (const job of [late, disabled]) t.is(newestRun(world.world, job), undefined);
  t.deepEqual(jobs.map((job) => skipsOf(world, job)).flat(), []);
});

test("a start delayed by jitter happens only if the job is still due at that time", async (t) => {
  await using world = await openRunWorld(() => Promise.resolve({}));
  const names = ["kept", "moved", "abroad", "another"];
  const jobs = await Promise.all(names.map((name) => world.addJob(name, { jitterSecs: 10 })));
  const [kept, moved, abroad, another] = jobs as [Job, Job, Job, Job];
  for (const job of jobs) world.due.fire(job, minuteMs);
  const newYear = { trigger: parseTrigger("0 0 1 1 *") };
  await world.edit(moved, newYear);
  await world.edit(abroad, { timeZone: "Asia/Tokyo" });
  await world.remove(another);
  await world.addJob(another.id, newYear);
  world.clock.pass(5 * secondMs);
  await attempts(world, kept, 1);
  for (const job of [moved, abroad, another]) t.is(newestRun(world.world, job), undefined, job.id);
});

test("a late start is caught up on if the job wants that", async (t) => {
  await using world = await openRunWorld(() => Promise.resolve({}));
  const job = await world.addJob("j", { jitterSecs: 60, catchUp: "latest" });
  const atMs = world.clock.nowMs() - 2 * minuteMs;
  world.due.resumeStart(job, atMs);
  world.due.resumeStart(job, atMs - minuteMs);
  await attempts(world, job, 1);
  t.is(newestRun(world.world, job)?.scheduledAtMs, atMs);
});

test("a due job waits until manually started runs leave a slot", async (t) => {
  await using world = await openRunWorld(
    (job, work) => (job.id.startsWith("hand") ? untilAborted(work) : Promise.resolve({})),
    { total: 10, perKey: 3 },
  );
  const byHand: number[] = [];
  for (let count = 0; count < 3; count++) {
    const job = await world.addJob(`hand-${count}`, {}, 1_000);
    byHand.push((await world.runner.start(job, { trigger: "manual", attempt: 1 })).run.id);
  }
  const due = await world.addJob("due", {}, 1_000);
  world.due.fire(due, minuteMs);
  await untilRecorded(world);
  t.is(newestRun(world.world, due), undefined);
  t.deepEqual(world.due.waitOf(due), { reason: "room", scheduledAtMs: minuteMs });
  world.due.fire(due, 2 * minuteMs);
  await world.runner.cancel(byHand[0]!);
  await attempts(world, due, 1);
  t.is(world.due.waitOf(due), undefined);
  await eventually(() => {
    world.clock.pass(secondMs);
    assert.deepEqual(skipsOf(world, due), [{ reason: "busy", count: 1, lastUnix: 120 }]);
  });
  t.deepEqual(world.logged, []);
});

test("starts that wait for a slot when the daemon stops are counted, unless the next daemon catches up", async (t) => {
  await using world = await openRunWorld((_job, work) => untilAborted(work), { total: 1, perKey: 1 });
  const [running, lost, kept] = await Promise.all([
    world.addJob("running"),
    world.addJob("lost"),
    world.addJob("kept", { catchUp: "latest" }),
  ]);
  for (const job of [running, lost, kept]) world.due.fire(job, minuteMs);
  await eventually(() => assert.ok(world.runner.isRunning(running)));
  world.due[Symbol.dispose]();
  await world.skips[Symbol.asyncDispose]();
  t.deepEqual(skipsOf(world, lost), [{ reason: "busy", count: 1, lastUnix: 60 }]);
  t.deepEqual(skipsOf(world, kept), []);
});

test("a job shows what it waits for", async (t) => {
  await using world = await openRunWorld(fails);
  const job = await world.addJob("j", { jitterSecs: 10, retries: 1 });
  const nowMs = world.clock.nowMs();
  world.due.fire(job, nowMs);
  t.deepEqual(world.due.waitOf(job), { reason: "jitter", scheduledAtMs: nowMs, untilMs: nowMs + 5_000 });
  world.clock.pass(5_000);
  await attempts(world, job, 1);
  await eventually(() => assert.equal(world.due.waitOf(job)?.reason, "retry"));
  t.is(world.due.waitOf(job)?.untilMs, nowMs + 35_000);
});

test("a failed run is retried after 30 s, then after twice the delay each time, as often as the job sets", async (t) => {
  await using world = await openRunWorld(fails);
  const job = await world.addJob("j", { retries: 3 });
  world.due.fire(job, minuteMs);
  for (const [before, waitMs] of [30, 60, 120].map((secs, at) => [at + 1, secs * secondMs] as const)) {
    await attempts(world, job, before);
    await nextTurn();
    world.clock.pass(waitMs - 1);
    await nextTurn();
    t.is(world.world.log.list(job).length, before, `not before ${waitMs} ms`);
    world.clock.pass(1);
  }
  t.deepEqual(await attempts(world, job, 4), [1, 2, 3, 4]);
  world.clock.pass(60 * minuteMs);
  await untilRecorded(world);
  t.is(world.world.log.list(job).length, 4);
  t.true(world.world.log.list(job).every(({ scheduledAtMs }) => scheduledAtMs === minuteMs));
});

test("no delay between attempts is longer than 30 minutes", async (t) => {
  await using world = await openRunWorld(fails);
  const job = await world.addJob("j", { retries: 10 });
  world.due.fire(job, minuteMs);
  for (let attempt = 1; attempt <= 10; attempt += 1) {
    await attempts(world, job, attempt);
    await nextTurn();
    world.clock.pass(30 * minuteMs);
  }
  t.is((await attempts(world, job, 11)).length, 11);
});

for (const [what, change] of [
  ["edited", (world: RunWorld, job: Job) => world.edit(job, { comment: "new" })],
  ["disabled", (world: RunWorld, job: Job) => world.edit(job, { enabled: false })],
  ["removed", (world: RunWorld, job: Job) => world.remove(job)],
  [
    "removed and added again as it was",
    async (world: RunWorld, job: Job) => {
      await world.remove(job);
      await world.addJob(job.id, { retries: 3 });
    },
  ],
] as const) {
  test(`a job that is ${what} is not retried`, async (t) => {
    await using world = await openRunWorld(fails);
    const job = await world.addJob("j", { retries: 3 });
    world.due.fire(job, minuteMs);
    await attempts(world, job, 1);
    await nextTurn();
    await change(world, job);
    world.clock.pass(60 * minuteMs);
    await untilRecorded(world);
    t.true(world.world.log.list(job).length <= 1);
    t.deepEqual(world.logged, []);
  });
}

test("a retry of another daemon happens at its time, or at once if that has passed", async (t) => {
  await using world = await openRunWorld(fails);
  const names = ["soon", "late", "back", "edited", "done"];
  const jobs = await Promise.all(names.map((name) => world.addJob(name, { retries: 1 })));
  const [soon, late, back, edited, done] = jobs as [Job, Job, Job, Job, Job];
  const resume = (job: Job): void =>
    world.due.resumeRetry(world.world.registry.get(job)!, newestRun(world.world, job)!);
  for (const job of jobs) {
    const attempt = job === done ? 2 : 1;
    const { run } = await world.runner.start(job, { trigger: "schedule", attempt, scheduledAtMs: minuteMs });
    await world.runner.untilEnded(run.id);
  }
  world.clock.step(-60 * minuteMs);
  resume(back);
  world.clock.step(60 * minuteMs);
  world.clock.pass(10 * secondMs);
  await world.edit(edited, { comment: "new" });
  for (const job of [soon, edited, done]) resume(job);
  world.clock.pass(20 * secondMs - 1);
  await untilRecorded(world);
  for (const job of jobs) t.is(world.world.log.list(job).length, 1, `${job.id}: not yet`);
  world.clock.pass(1);
  t.deepEqual(await attempts(world, soon, 2), [1, 2]);
  t.deepEqual(await attempts(world, back, 2), [1, 2], "a clock that was set back does not extend a delay");
  world.clock.pass(60 * minuteMs);
  resume(late);
  await nextTurn();
  world.clock.pass(1);
  t.deepEqual(await attempts(world, late, 2), [1, 2]);
  for (const job of [edited, done]) t.is(world.world.log.list(job).length, 1);
  t.true(world.world.log.list(late).every(({ scheduledAtMs }) => scheduledAtMs === minuteMs));
});

test("a run that succeeded, was canceled or was started manually is not retried", async (t) => {
  let isToFail = false;
  await using world = await openRunWorld((job, work) =>
    job.id === "long" ? untilAborted(work) : isToFail ? fails() : Promise.resolve({}),
  );
  const [fine, long, manual] = await Promise.all(
    ["fine", "long", "manual"].map((name) => world.addJob(name, { retries: 3 })),
  );
  world.due.fire(fine!, minuteMs);
  await attempts(world, fine!, 1);
  world.due.fire(long!, minuteMs);
  await eventually(() => world.runner.cancel(world.world.log.runningOf(long!)!.id));
  isToFail = true;
  await world.runner.start(manual!, { trigger: "manual", attempt: 1 });
  await attempts(world, manual!, 1);
  world.clock.pass(60 * minuteMs);
  await untilRecorded(world);
  for (const job of [fine!, long!, manual!]) t.is(world.world.log.list(job).length, 1);
});

test("a new firing replaces a retry", async (t) => {
  await using world = await openRunWorld(fails);
  const job = await world.addJob("j", { retries: 1 });
  world.due.fire(job, minuteMs);
  await attempts(world, job, 1);
  await nextTurn();
  world.due.fire(job, 2 * minuteMs);
  await attempts(world, job, 2);
  await nextTurn();
  world.clock.pass(30 * secondMs);
  t.deepEqual(await attempts(world, job, 3), [1, 1, 2]);
  t.is(newestRun(world.world, job)?.scheduledAtMs, 2 * minuteMs);
});

test("jobs of one minute do not wait for a long one, and the number of concurrent runs is limited", async (t) => {
  let running = 0;
  let most = 0;
  const act: Action = async (job, work) => {
    if (job.id === "long") return untilAborted(work);
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
    return {};
  };
  await using world = await openRunWorld(act, { total: 10, reserved: 8, perKey: 1 });
  const long = await world.addJob("long");
  const many = await Promise.all(Array.from({ length: 100 }, (_, at) => world.addJob(`job${at}`)));
  const other = await world.addJob("other", {}, 5);
  world.due.fire(long, minuteMs);
  for (const job of many) world.due.fire(job, minuteMs);
  world.due.fire(other, minuteMs);
  await attempts(world, other, 1);
  t.true(world.world.log.list(many.at(-1)!).length === 0, "another owner does not wait for the hundred");
  for (const job of many) await attempts(world, job, 1);
  t.true(world.runner.isRunning(long));
  t.true(most <= 9, `${most} at once`);
});

test("slots are assigned to users in turn", async (t) => {
  const slots = new Limiter<number>({ total: 2, perKey: 2 });
  const order: number[] = [];
  const held: Disposable[] = [];
  const runs = [1, 1, 1, 1, 2, 2, 3].map(async (owner) => {
    held.push(await slots.acquire(owner));
    order.push(owner);
  });
  await nextTurn();
  while (held.length > 0) {
    const [first] = held.splice(0, 1);
    first![Symbol.dispose]();
    first![Symbol.dispose]();
    await nextTurn();
  }
  await Promise.all(runs);
  t.deepEqual(order, [1, 1, 1, 2, 3, 1, 2]);
});

function skipsOf({ world }: RunWorld, job: Job): readonly JobSkip[] {
  return readSummaries(world.store, [job]).get(keyText(job))?.skips ?? [];
}

/** Everything started earlier has been recorded: writes keep their order. */
async function untilRecorded(world: RunWorld): Promise<void> {
  await nextTurn();
  const job = await world.addJob("later");
  world.due.fire(job, 0);
  await attempts(world, job, 1);
}

async function nextTurn(): Promise<void> {
  for (let time = 0; time < 5; time += 1) await new Promise((resolve) => setImmediate(resolve));
}

test("a job on 29 February fires on that day only, years after its start", (t) => {
  const table = new DueTable(new Zones());
  const fired: string[] = [];
  run(table.fill([job("leap", "0 0 29 2 *")]));
  for (let atMs = Date.UTC(2096, 2, 1); atMs < Date.UTC(2109, 0, 1); atMs += dayMs)
    run(table.pass(atMs, () => fired.push(new Date(atMs).toISOString().slice(0, 10))));
  t.deepEqual(fired, ["2104-02-29", "2108-02-29"]);
});

function run(work: Generator<undefined, void>): void {
  while (work.next().done !== true);
}

// Jobs that events fire.

function jobOn(ownerUid: number, id: string, kind: string, subject = ""): Job {
  return { ownerUid, id, enabled: true, trigger: { event: { kind, subject } } } as unknown as Job;
}

function open(jobs: readonly Job[]) {
  const clock = new FakeClock();
  const fired: string[] = [];
  let publish: (event: NodeEvent) => void = () => undefined;
  const eventJobs = new EventJobs({
    jobs: { all: () => jobs },
    due: { fire: ({ id }) => void fired.push(id) },
    events: {
      listen: (listener) => {
        publish = listener;
        return { [Symbol.dispose]: () => undefined };
      },
    },
    isRoot: (uid) => uid === 0,
    clock,
  });
  return { clock, fired, eventJobs, publish: (event: NodeEvent) => publish(event) };
}

test("a flood of events fires each job once per 100 ms", (t) => {
  const { clock, fired, publish } = open([
    jobOn(5, "any", "app.detail"),
    jobOn(5, "one", "app.detail", "a7"),
  ]);
  for (let each = 0; each < 4_000; each++) publish({ kind: "app.detail", appId: `a${each % 200}`, owner: 5 });
  t.deepEqual(fired, []);
  clock.pass(100);
  t.deepEqual(fired, ["any", "one"]);
  clock.pass(1_000);
  t.is(fired.length, 2, "a job fires again only on another event");
  publish({ kind: "app.detail", appId: "a8", owner: 5 });
  clock.pass(100);
  t.deepEqual(fired, ["any", "one", "any"]);
});

test("events of one moment fire only the jobs whose owners may see them", (t) => {
  const { clock, fired, publish, eventJobs } = open([
    jobOn(5, "own", "app.crashed", "web"),
    jobOn(6, "another user", "app.crashed", "web"),
    jobOn(6, "other app", "app.crashed", "db"),
    jobOn(6, "hosts", "alert.began"),
    jobOn(0, "root", "app.crashed", "web"),
    jobOn(0, "roots", "alert.began", "disk"),
  ]);
  publish({ kind: "app.crashed", appId: "web", owner: 5 });
  publish({ kind: "app.crashed", appId: "cache", owner: 6 });
  publish({ kind: "alert.began", subject: "disk", isRoots: true });
  clock.pass(100);
  t.deepEqual(fired, ["own", "root", "roots"]);
  publish({ kind: "alert.began", subject: "load" });
  clock.pass(100);
  t.deepEqual(fired.slice(3), ["hosts"]);
  publish({ kind: "app.crashed", appId: "web", owner: 5 });
  eventJobs[Symbol.dispose]();
  clock.pass(100);
  t.is(fired.length, 4, "nothing fires after the end");
});

test("jitter is the same for the same firing of a host, and different for every other", (t) => {
  const [web, db] = [job("web", "hourly", { jitterSecs: 600 }), job("db", "hourly", { jitterSecs: 600 })];
  const [here, there] = [createJitter("a"), createJitter("b")];
  t.is(here(web, minuteMs), createJitter("a")(web, minuteMs));
  const others = [here(web, minuteMs), here(web, 2 * minuteMs), here(db, minuteMs), there(web, minuteMs)];
  t.is(new Set(others).size, 4);
});

test("jitter stays within its limit and is spread over it", (t) => {
  const spread = job("web", "hourly", { jitterSecs: 10 });
  const jitter = createJitter("a");
  const tenths = new Array<number>(10).fill(0);
  for (let minute = 0; minute < 10_000; minute++) {
    const ms = jitter(spread, minute * minuteMs);
    tenths[Math.floor(ms / 1_000)]! += 1;
  }
  t.is(
    tenths.reduce((sum, count) => sum + count, 0),
    10_000,
    "none is outside",
  );
  t.true(
    tenths.every((count) => count > 850 && count < 1_150),
    tenths.join(" "),
  );
  t.is(jitter(job("none", "hourly"), minuteMs), 0);
});
