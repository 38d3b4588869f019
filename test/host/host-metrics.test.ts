/** Samples over time: their interval, their history, and a restart. */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../src/errors.ts";
import { HostMetrics } from "../../src/host/metrics/host-metrics.ts";
import type { HistoryQuestion } from "../../src/lib/samples/sample-ring.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";

const all = { limit: 1_000 };
const asker = { share: "uid 1000", signal: new AbortController().signal };

async function prepare(t: ExecutionContext) {
  const dir = await mkdtemp(join(tmpdir(), "svc-metrics-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const clock = new FakeClock("2026-01-01T00:00:00Z");
  const warnings: string[] = [];
  const open = () =>
    new HostMetrics({
      ...{ dir: join(dir, "metrics"), intervalSecs: 10, clock },
      log: { warn: (_details, message) => void warnings.push(message) },
    });
  /** Advances time until one more sample is taken. */
  const take = async (metrics: HostMetrics, passMs = 10_000): Promise<void> => {
    const before = newestOf(metrics);
    await eventually(() => {
      if (clock.isIdle) throw new Error("it is still working");
    });
    clock.pass(passMs);
    await eventually(() => {
      if (newestOf(metrics) === before) throw new Error("no sample was taken");
    });
  };
  return { dir, clock, open, take, warnings };
}

function newestOf(metrics: HostMetrics): number | undefined {
  return metrics.readings()?.sample.atMs;
}

test("there is no sample until the first one, and then one at each interval", async (t) => {
  const { clock, open, take } = await prepare(t);
  await using metrics = open();
  metrics.start();
  t.is(newestOf(metrics), undefined);
  await take(metrics, 1_000);
  t.is(newestOf(metrics), clock.nowMs());
  for (let n = 0; n < 3; n++) await take(metrics);
  const { samples, intervalSecs } = await metrics.history(all, asker);
  t.is(intervalSecs, 10);
  t.deepEqual(
    samples.map(({ atMs }) => atMs - clock.nowMs()),
    [-30_000, -20_000, -10_000, 0],
  );
  t.is((await metrics.history({ limit: 2 }, asker)).samples.length, 2);
  t.deepEqual((await metrics.history({ limit: 9, sinceMs: clock.nowMs() }, asker)).samples, [
    metrics.newest(),
  ]);
});

test("the newest sample is not ready before the first one, without waiting", async (t) => {
  const { open, take } = await prepare(t);
  await using metrics = open();
  metrics.start();
  t.is(t.throws(() => metrics.newest(), { instanceOf: SvcError }).reason, "not_ready");
  await take(metrics, 1_000);
  t.is(metrics.newest().atMs, newestOf(metrics) ?? 0);
});

test("a follower gets the newest sample at once and then each new one, and ends with its signal", async (t) => {
  const { open, take } = await prepare(t);
  await using metrics = open();
  metrics.start();
  await take(metrics, 1_000);
  const stop = new AbortController();
  const followed = metrics.follow(stop.signal);
  t.is((await followed.next()).value.atMs, newestOf(metrics) ?? 0);
  const next = followed.next();
  await take(metrics);
  t.is((await next).value.atMs, newestOf(metrics) ?? 0);
  const never = followed.next();
  stop.abort(new Error("enough"));
  await t.throwsAsync(never, { message: "enough" });
});

test("a restart keeps the history, and summarizes what the previous daemon had not yet", async (t) => {
  const { clock, open, take } = await prepare(t);
  {
    await using metrics = open();
    metrics.start();
    await take(metrics, 1_000);
    for (let n = 0; n < 31; n++) await take(metrics);
  }
  clock.pass(600_000);
  await using metrics = open();
  metrics.start();
  await take(metrics, 1_000);
  t.is((await metrics.history(all, asker)).samples.length, 33);
  const { samples, intervalSecs } = await metrics.history({ limit: 100, stepSecs: 300 }, asker);
  t.is(intervalSecs, 300);
  t.deepEqual(
    samples.map(({ atMs }) => Math.floor(atMs / 300_000) * 300 - Date.parse("2026-01-01T00:00:00Z") / 1000),
    [0, 300, 900],
  );
});

test("a killed daemon loses at most a minute", async (t) => {
  const { open, take } = await prepare(t);
  const killed = open();
  killed.start();
  await take(killed, 1_000);
  for (let n = 0; n < 20; n++) await take(killed);
  const taken = (await killed.history(all, asker)).samples.length;
  // Another process reads the files on disk; nothing was repaired.
  const kept = (await open().history(all, asker)).samples.length;
  t.is(taken, 21);
  t.true(kept >= taken - 7, `${kept} of ${taken}`);
  await killed[Symbol.asyncDispose]();
});

test("a day has some 300 points, and each is an average", async (t) => {
  const { open, take } = await prepare(t);
  await using metrics = open();
  metrics.start();
  await take(metrics, 1_000);
  for (let n = 0; n < 12; n++) await take(metrics);
  const { samples, intervalSecs } = await metrics.history({ limit: 300, stepSecs: 60 }, asker);
  t.is(intervalSecs, 60);
  t.is(samples.length, 3);
});

test("one history per user is read at a time, and none once the user has disconnected", async (t) => {
  const { dir, clock, open, take } = await prepare(t);
  await using metrics = open();
  metrics.start();
  await take(metrics, 1_000);
  // The previous hour's file stays open until it is written to.
  const pipe = join(dir, "metrics", `day-${Math.floor(clock.nowMs() / 3_600_000) - 1}`);
  await mkdir(join(dir, "metrics"), { recursive: true });
  await promisify(execFile)("mkfifo", [pipe]);
  const [long, short] = [all, { limit: 1, sinceMs: clock.nowMs() }];
  const order: string[] = [];
  const ask = async (name: string, share: string, question: HistoryQuestion, signal = asker.signal) => {
    const asked = metrics.history(question, { share, signal });
    await asked.then(
      () => order.push(name),
      () => order.push(`${name} left`),
    );
  };
  const leaving = new AbortController();
  const [first, second] = [ask("first", "a", long), ask("second", "a", long, leaving.signal)];
  const third = ask("third", "a", short);
  leaving.abort(new Error("gone"));
  // An occasional caller does not wait for a frequent one.
  await ask("other", "b", short);
  await writeFile(pipe, "");
  await Promise.all([first, second, third]);
  t.deepEqual(order, ["second left", "other", "first", "third"]);
});

test("a full disk is logged once, sampling continues, and missed samples are stored later", async (t) => {
  const { dir, open, take, warnings } = await prepare(t);
  const place = join(dir, "metrics");
  await writeFile(place, "a file where the directory should be");
  await using metrics = open();
  metrics.start();
  await take(metrics, 1_000);
  for (let n = 0; n < 20; n++) await take(metrics);
  t.deepEqual(warnings, ["samples of the host: cannot save them"]);
  t.is((await metrics.history(all, asker)).samples.length, 21);
  await rm(place);
  for (let n = 0; n < 7; n++) await take(metrics);
  t.is((await open().history(all, asker)).samples.length >= 21, true);
});
