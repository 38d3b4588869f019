import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { keyText, type JobKey } from "../../../src/scheduler/jobs/job.ts";
import { viewRun } from "../../../src/scheduler/jobs/job-views.ts";
import type { Run, RunOutcome } from "../../../src/scheduler/runs/run.ts";
import { readSummaries } from "../../../src/scheduler/runs/run-summaries.ts";
import { migrations } from "../../../src/store/migrations.ts";
import { openStore, temporaryDir, until } from "../../store/support/temporary-store.ts";
import {
  deadExecutor,
  runningRuns,
  openWorld,
  otherExecutor,
  putJob,
  removeJob,
  succeeded,
  type World,
} from "../support/world.ts";

const key: JobKey = { ownerUid: 0, id: "job" };
const manual = { trigger: "manual", attempt: 1 } as const;

/** The newest run, as shown with its job. */
function newestShown({ store }: World): Run | undefined {
  return readSummaries(store, [key]).get(keyText(key))?.last;
}

/** Writes what svc would not. */
function damage({ dir }: World, sql: string): void {
  using database = new DatabaseSync(join(dir, "svc.db"), { timeout: 5_000 });
  database.exec(`PRAGMA ignore_check_constraints = ON; ${sql}`);
}

test("a run is opened and closed, and is read as it was written", async (t) => {
  await using world = await openWorld();
  const { log, clock } = world;
  await putJob(world, key);
  const cause = { trigger: "schedule", attempt: 2, scheduledAtMs: 60_000 } as const;
  const { started, run } = await log.open(key, cause);
  const opened: Run = { id: run.id, number: 1, job: key, ...cause, startedAtMs: clock.nowMs };
  t.true(started);
  t.deepEqual(run, opened);
  t.deepEqual(log.runningOf(key), opened);
  t.deepEqual(newestShown(world), opened);

  clock.nowMs += 1_500;
  const outcome: RunOutcome = {
    status: "FAILED",
    exitCode: 3,
    httpStatus: 500,
    output: "a\0b",
    error: "exit code 3",
    truncated: true,
  };
  const ended: Run = { ...opened, endedAtMs: clock.nowMs, outcome };
  t.deepEqual(await log.close(run, outcome), ended);
  t.is(log.runningOf(key), undefined);
  t.deepEqual(log.list(key), [ended]);
  t.deepEqual(log.get(run.id), ended);
  t.deepEqual(newestShown(world), { ...ended, outcome: { ...outcome, output: "" } }, "without the output");

  const amended = { ...succeeded, output: "more" };
  t.deepEqual((await log.amend(ended, amended)).outcome, amended);
  t.deepEqual(log.get(run.id)?.outcome, amended);
});

test("the outputs of a user's runs share a budget, and the oldest of a job are removed", async (t) => {
  await using world = await openWorld();
  const { log } = world;
  const output = "x".repeat(65_536);
  // A thousand jobs, as many as a user can have: each may store two outputs.
  const addOthers = `WITH RECURSIVE others (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM others WHERE i < 999)
    INSERT INTO jobs (owner_uid, id, managed_by, document, updated_at, revision)
    SELECT owner_uid, id || i, managed_by, document, updated_at, revision FROM jobs, others WHERE owner_uid = ?`;
  const runAll = async (ownerUid: number, count: number): Promise<readonly Run[]> => {
    const job = { ownerUid, id: "job" };
    await putJob(world, job);
    await world.store.write([{ sql: addOthers, params: [ownerUid] }]);
    for (let each = 0; each < count; each++) {
      const { run } = await log.open(job, manual);
      await log.close(run, { ...succeeded, output });
    }
    return log.list(job);
  };
  const shown = (runs: readonly Run[]) =>
    runs.map(({ outcome }) => [outcome?.output.length, outcome?.truncated] as const);
  const kept = [65_536, false] as const;
  t.deepEqual(shown(await runAll(1_000, 4)), [kept, kept, [0, true], [0, true]]);
  t.deepEqual(shown(await runAll(0, 3)), [kept, kept, kept]);
});

test("a clock that was set back never makes a run end before it started", async (t) => {
  await using world = await openWorld();
  await putJob(world, key);
  const { run } = await world.log.open(key, manual);
  world.clock.nowMs -= 5_000;
  const { endedAtMs } = await world.log.close(run, succeeded);
  t.is(endedAtMs, run.startedAtMs);
  t.is(world.log.get(run.id)?.endedAtMs, run.startedAtMs);
});

test("one run of a job is active at a time, whoever starts it and however many at once", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir, executor: await otherExecutor() });
  await putJob(world, key);
  await putJob(world, { ...key, id: "another" });
  const answers = await Promise.all([world, other, world, other].map(({ log }) => log.open(key, manual)));
  t.is(answers.filter(({ started }) => started).length, 1);
  t.is(new Set(answers.map(({ run }) => run.id)).size, 1, "the others get the active one");
  t.true((await other.log.open({ ...key, id: "another" }, manual)).started);

  const [{ run } = t.fail()] = answers.filter(({ started }) => started);
  await world.log.close(run, succeeded);
  t.true((await other.log.open(key, manual)).started);
});

test("a missing job has no run", async (t) => {
  await using world = await openWorld();
  await t.throwsAsync(world.log.open(key, manual), { message: 'no job "job"' });
  await putJob(world, { ...key, ownerUid: 7 });
  await t.throwsAsync(world.log.open(key, manual), { message: 'no job "job"' });
});

test("the newest 50 runs are retained with their outputs; older ones are removed when one is closed", async (t) => {
  await using world = await openWorld();
  const { log, store } = world;
  await putJob(world, key);
  await putJob(world, { ...key, id: "other" });
  const { run: foreign } = await log.open({ ...key, id: "other" }, manual);
  await log.close(foreign, { ...succeeded, output: "theirs" });
  const ids: number[] = [];
  for (let count = 0; count < 53; count++) {
    const { run } = await log.open(key, manual);
    ids.push(run.id);
    await log.close(run, { ...succeeded, output: String(count) });
  }
  t.deepEqual(
    log.list(key).map(({ id }) => id),
    ids.slice(3).reverse(),
  );
  t.deepEqual(
    log.list(key, 2).map(({ outcome }) => outcome?.output),
    ["52", "51"],
  );
  t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM runs")?.n, 51);
  t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM run_outputs")?.n, 51);
  t.is(log.get(foreign.id)?.outcome?.output, "theirs");
});

test("a run's number is never reused, even after its job was removed", async (t) => {
  await using world = await openWorld();
  await putJob(world, key);
  const { run } = await world.log.open(key, manual);
  await removeJob(world, key);
  await putJob(world, key);
  const { run: next } = await world.log.open(key, manual);
  t.true(next.id > run.id);
  t.true(next.number > run.number);
});

test("users see run numbers per owner, which do not reveal how many runs others had", async (t) => {
  await using world = await openWorld();
  const theirs: JobKey = { ownerUid: 1000, id: "theirs" };
  await putJob(world, key);
  await putJob(world, theirs);
  const shown: string[] = [];
  for (const one of [key, key, key, theirs, key, theirs]) {
    const { run } = await world.log.open(one, manual);
    await world.log.close(run, succeeded);
    shown.push(viewRun(run).id);
  }
  t.deepEqual(shown, ["1", "2", "3", "1", "4", "2"]);
  t.deepEqual(
    world.log.list(theirs).map((run) => viewRun(run).id),
    ["2", "1"],
  );
});

test("runs of an older database keep their numbers, and their owner's next runs continue from there", async (t) => {
  await using dir = await temporaryDir();
  const before = migrations.findIndex((step) => step.includes("run_numbers"));
  {
    await using store = await openStore({ dir: dir.path, migrations: migrations.slice(0, before) });
    const run = "INSERT INTO runs (job, trigger, attempt, started_at, ended_at, status)";
    await store.write([
      ...[1, 2].map((uid) => ({
        sql: "INSERT INTO jobs (owner_uid, id, managed_by, document, updated_at, revision) VALUES (?, 'job', '', '{}', 0, 1)",
        params: [uid],
      })),
      ...[1, 2, 1, 2].map((n) => ({
        sql: `${run} SELECT n, 'manual', 1, 0, 0, 'SUCCEEDED' FROM jobs WHERE owner_uid = ?`,
        params: [n],
      })),
    ]);
  }
  await using store = await openStore({ dir: dir.path });
  t.deepEqual(store.all("SELECT owner_uid, last FROM run_numbers ORDER BY owner_uid"), [
    { owner_uid: 1, last: 3 },
    { owner_uid: 2, last: 4 },
  ]);
  t.deepEqual(store.all("SELECT id FROM runs WHERE number <> id"), []);
});

test("a run that is removed with its job is closed without a record", async (t) => {
  await using world = await openWorld();
  await putJob(world, key);
  const { run } = await world.log.open(key, manual);
  await world.log.skip(key, "running", 5_000);
  await removeJob(world, key);
  t.is((await world.log.close(run, { ...succeeded, output: "x" })).outcome?.status, "SUCCEEDED");
  for (const table of ["runs", "run_outputs", "job_skips"]) {
    t.is(world.store.get<{ n: number }>(`SELECT count(*) AS n FROM ${table}`)?.n, 0, table);
  }
});

test("a run of a dead process is INTERRUPTED when the job runs again", async (t) => {
  await using world = await openWorld();
  await using dead = await openWorld({ dir: world.dir, executor: await deadExecutor() });
  await putJob(world, key);
  const { run: left } = await dead.log.open(key, manual);
  const { started, run } = await world.log.open(key, manual);
  t.true(started);
  t.deepEqual(
    world.log.list(key).map(({ id, outcome }) => [id, outcome?.status]),
    [
      [run.id, undefined],
      [left.id, "INTERRUPTED"],
    ],
  );
  t.is(world.log.get(left.id)?.outcome?.error, "the process that ran it exited before the run finished");
  // A process that resumes later changes nothing any more.
  await dead.log.close(left, { ...succeeded, output: "late" });
  t.like(world.log.get(left.id)?.outcome, { status: "INTERRUPTED", output: "" });
});

test("recovery closes the runs of dead processes and keeps live ones", async (t) => {
  await using world = await openWorld();
  await using dead = await openWorld({ dir: world.dir, executor: await deadExecutor() });
  const live: JobKey = { ...key, id: "live" };
  await putJob(world, key);
  await putJob(world, live);
  const { run: left } = await dead.log.open(key, manual);
  const { run: ours } = await world.log.open(live, manual);
  await world.log.recover();
  t.deepEqual(
    (await runningRuns(world)).map(({ id }) => id),
    [ours.id],
  );
  t.is(world.log.get(left.id)?.outcome?.status, "INTERRUPTED");
});

test("a run between its opening and the response is not considered left behind", async (t) => {
  await using world = await openWorld();
  await putJob(world, key);
  const opening = world.log.open(key, manual);
  using _always = world.store.onChange(() => void world.log.recover());
  await opening;
  await world.log.recover();
  t.is((await runningRuns(world)).length, 1);
});

test("starts and ends of runs of this process and of others are notified", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir, executor: await otherExecutor() });
  const theirs: JobKey = { ...key, id: "theirs" };
  await putJob(world, key);
  await putJob(world, theirs);
  const { run: before } = await world.log.open(key, manual);
  const heard: string[] = [];
  using _listening = world.log.onChange(({ job, outcome }) => {
    heard.push(`${job.id} ${outcome?.status ?? "RUNNING"} ${outcome?.output ?? ""}`);
  });
  await world.log.close(before, { ...succeeded, output: "one" });
  t.deepEqual(heard, ["job SUCCEEDED one"]);

  const { run } = await other.log.open(theirs, manual);
  await until(() => heard.length === 2, 1_000);
  await other.log.close(run, { ...succeeded, output: "two" });
  await until(() => heard.length === 3, 1_000);
  const { run: quick } = await other.log.open(theirs, manual);
  await other.log.close(quick, { ...succeeded, output: "three" });
  await until(() => heard.length === 5, 1_000);
  t.deepEqual(heard.slice(1), [
    "theirs RUNNING ",
    "theirs SUCCEEDED two",
    "theirs RUNNING ",
    "theirs SUCCEEDED three",
  ]);
});

test("a caller can wait for the end of a run", async (t) => {
  await using world = await openWorld();
  await using other = await openWorld({ dir: world.dir, executor: await otherExecutor() });
  await putJob(world, key);
  const { run } = await other.log.open(key, manual);
  let ended: Run | undefined;
  void world.log.untilEnded(run.id, AbortSignal.timeout(5_000)).then((last) => (ended = last));
  await other.log.close(run, { ...succeeded, output: "done" });
  await until(() => ended !== undefined, 1_000);
  t.deepEqual(ended?.outcome, { ...succeeded, output: "done" });
  t.is((await world.log.untilEnded(run.id, AbortSignal.timeout(5_000)))?.outcome?.output, "done");
  t.is(await world.log.untilEnded(999, AbortSignal.timeout(5_000)), undefined);

  const { run: next } = await other.log.open(key, manual);
  const controller = new AbortController();
  const waiting = world.log.untilEnded(next.id, controller.signal);
  controller.abort(new Error("enough"));
  await t.throwsAsync(waiting, { message: "enough" });
});

test("skipped firings are counted by reason, many of one turn in one transaction", async (t) => {
  await using world = await openWorld();
  const { log } = world;
  await putJob(world, key);
  await Promise.all([
    log.skip(key, "running", 60_000),
    log.skip(key, "running", 180_000, 2),
    log.skip(key, "late", 120_000, 7),
    log.skip({ ...key, id: "gone" }, "late", 120_000),
  ]);
  await log.skip(key, "running", 120_000);
  t.deepEqual(readSummaries(world.store, [key]).get("0/job")?.skips, [
    { reason: "late", count: 7, lastUnix: 120 },
    { reason: "running", count: 4, lastUnix: 180 },
  ]);
});

test("a damaged count of skipped firings is not shown, and restarts", async (t) => {
  await using world = await openWorld();
  await putJob(world, key);
  const skips = () => readSummaries(world.store, [key]).get("0/job")?.skips ?? [];
  for (const [count, lastUnix] of [
    ["-7", "60"],
    ["1 << 62", "1 << 62"],
  ]) {
    await world.log.skip(key, "late", 60_000);
    damage(world, `UPDATE job_skips SET count = ${count}, last_unix = ${lastUnix}`);
    t.deepEqual(skips(), []);
    await world.log.skip(key, "late", 120_000, 2);
    t.is(skips()[0]?.lastUnix, 120);
    t.true([2, 2 ** 32 - 1].includes(skips()[0]?.count ?? 0));
    damage(world, "DELETE FROM job_skips");
  }
});

test("a run whose row is damaged while it is active stays active, and is notified to its job", async (t) => {
  await using world = await openWorld();
  const { log } = world;
  const job = await putJob(world, key);
  const { run } = await log.open(job, { trigger: "manual", attempt: 1 });
  damage(world, `UPDATE runs SET attempt = -1, scheduled_at = 1 << 62 WHERE id = ${run.id}`);
  for (const shown of [log.get(run.id), log.runningOf(job), newestShown(world)]) {
    t.is(shown?.id, run.id);
    t.is(shown?.outcome, undefined);
  }
  t.false((await log.open(job, { trigger: "manual", attempt: 1 })).started);
  await log.close(run, succeeded);
  t.like(log.get(run.id)?.outcome, { status: "SUCCEEDED", error: "the stored data is damaged" });
});

test("the newest run that a job's trigger started marks its progress, also behind 50 others, and so do skips", async (t) => {
  await using world = await openWorld();
  const { log } = world;
  const job = await putJob(world, { ownerUid: 0, id: "j" });
  const nowMs = Date.UTC(2026, 0, 2);
  t.is(log.settledUntil(job, nowMs), 0);
  t.is(log.newestFiringMs(), 0);
  const { run } = await log.open(job, { trigger: "schedule", attempt: 1, scheduledAtMs: 60_000 });
  await log.close(run, succeeded);
  for (let count = 0; count < 51; count += 1) {
    const { run: manual } = await log.open(job, { trigger: "manual", attempt: 1 });
    await log.close(manual, succeeded);
  }
  t.is(log.list(job).length, 50);
  t.is(log.settledUntil(job, nowMs), 60_000);
  t.is(log.newestFiringMs(), 60_000);
  t.true(log.hasFired(job, 60_000));
  t.false(log.hasFired(job, 120_000));
  await log.skip(job, "running", 120_000);
  await log.skip(job, "late", nowMs + 60_000);
  t.is(log.settledUntil(job, nowMs), 120_000, "except for skips by a clock that was ahead");
});

test("a page of runs contains what fits, the newest first, and at least one", async (t) => {
  await using world = await openWorld();
  const { log } = world;
  await putJob(world, key);
  const lengths = [1, 300_000, 65_536, 65_536, 65_536, 65_536, 65_536, 1];
  for (const length of lengths) {
    const { run } = await log.open(key, manual);
    await log.close(run, { ...succeeded, output: "x".repeat(length) });
  }
  const pages: number[][] = [];
  for (let before: number | undefined; ;) {
    const { runs, isLast } = log.page(key, undefined, before);
    pages.push(runs.map(({ number }) => number));
    before = runs.at(-1)?.number;
    if (isLast) break;
  }
  t.deepEqual(pages, [[8, 7, 6, 5, 4], [3, 2], [1]]);
  t.deepEqual(
    log.page(key, 2, 6).runs.map(({ number }) => number),
    [5, 4],
  );
  t.true(log.page(key, 2, 2).isLast);
  t.deepEqual(log.page({ ownerUid: 0, id: "none" }), { runs: [], isLast: true });
});
