/** The host's figures: samples, their history and their files; names of processes. */
import { execFile, spawn } from "node:child_process";
import {
  appendFile,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  truncate,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../src/errors.ts";
import { HostMetrics } from "../../src/host/metrics/host-metrics.ts";
import { type HostReading, hostSample, summarize } from "../../src/host/metrics/host-sample.ts";
import type { KernelCounters } from "../../src/host/metrics/kernel-counters.ts";
import { ProcessMemo } from "../../src/host/processes/process-memo.ts";
import { ProcessScan } from "../../src/host/processes/process-scan.ts";
import { SampleFiles } from "../../src/lib/samples/sample-files.ts";
import type { HistoryQuestion } from "../../src/lib/samples/sample-ring.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";

// Samples over time: their interval, their history, and a restart.

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

// From two readings to one sample, and from many samples to one.

const idle = { user: 0, system: 0, idle: 0, iowait: 0, irq: 0, steal: 0 };

function reading(seconds: number, counters: Partial<KernelCounters> = {}): HostReading {
  return {
    atMs: seconds * 1000,
    monotonicMs: seconds * 1000,
    filesystems: [],
    counters: {
      processor: idle,
      cores: [idle, idle],
      load: [1, 2, 3],
      memory: { MemTotal: 100, MemAvailable: 40, SwapTotal: 10, SwapFree: 4 },
      pressure: {},
      disks: [],
      interfaces: [],
      temperatures: [],
      uptimeSecs: seconds + 0.9,
      ...counters,
    },
  };
}

test("shares cover the time since the previous reading, and I/O wait is not busy", (t) => {
  const processor = { user: 30, system: 10, idle: 40, iowait: 10, irq: 5, steal: 5 };
  const sample = hostSample(reading(12, { processor, cores: [processor, idle] }), reading(2));
  t.is(sample.cpuPercent, 50);
  t.deepEqual(sample.cpu, {
    userPercent: 30,
    systemPercent: 10,
    iowaitPercent: 10,
    irqPercent: 5,
    stealPercent: 5,
    idlePercent: 40,
  });
  t.is(sample.cpuCount, 2);
  t.deepEqual([sample.memoryTotalBytes, sample.memoryAvailableBytes], [100, 40]);
  t.deepEqual([sample.swapTotalBytes, sample.swapUsedBytes], [10, 6]);
  t.is(sample.uptimeSecs, 12);
});

test("figures that the kernel does not report are absent", (t) => {
  const sample = hostSample(reading(1), reading(1));
  t.is(sample.cpu, undefined, "no tick has passed");
  t.is(sample.processes, undefined);
  t.is(sample.memorySlabBytes, undefined);
  t.deepEqual(sample.pressure, {});
});

test("a counter that went back and a new device count as idle", (t) => {
  const processor = { ...idle, user: 50, iowait: 90, idle: 10 };
  const later = { ...processor, user: 60, iowait: 80, idle: 20 };
  const disk = { name: "a", reads: 1, writes: 1, readBytes: 10, writtenBytes: 10, busyMs: 5 };
  const network = { name: "e", receivedBytes: 5, sentBytes: 5, errors: 0, dropped: 0 };
  const sample = hostSample(
    reading(2, { processor: later, disks: [disk], interfaces: [network] }),
    reading(1, { processor, disks: [], interfaces: [{ ...network, receivedBytes: 9 }] }),
  );
  t.is(sample.cpu?.iowaitPercent, 0);
  t.is(sample.cpuPercent, 50);
  t.deepEqual(sample.disks, [{ name: "a", readBytes: 10, writtenBytes: 10 }]);
  t.like(sample.interfaces[0], { receivedPerSec: 0, sentPerSec: 0 });
});

test("rates are per second, and a disk is busy for at most all of the time", (t) => {
  const disk = { name: "a", reads: 0, writes: 0, readBytes: 0, writtenBytes: 0, busyMs: 0 };
  const later = { ...disk, reads: 20, writes: 10, readBytes: 4096, writtenBytes: 1000, busyMs: 50_000 };
  const [sample] = hostSample(reading(12, { disks: [later] }), reading(2, { disks: [disk] })).disks;
  t.deepEqual(sample, {
    ...{ name: "a", readBytes: 4096, writtenBytes: 1000 },
    ...{ readPerSec: 409.6, writtenPerSec: 100, readsPerSec: 2, writesPerSec: 1, busyPercent: 100 },
  });
});

test("CPUs that were added or removed have no shares in a sample", (t) => {
  t.deepEqual(hostSample(reading(2, { cores: [idle] }), reading(1)).cores, []);
});

test("a summary averages shares, rates and levels, and has all else from the end", (t) => {
  const busy = (percent: number) => ({ ...idle, user: percent, idle: 100 - percent });
  const start = reading(0, { processor: idle, cores: [idle] });
  const memory = (available: number) => ({ MemTotal: 100, MemAvailable: available });
  const one = hostSample(
    reading(10, { processor: busy(10), cores: [busy(10)], memory: memory(10), load: [1, 1, 1] }),
    start,
  );
  const other = hostSample(
    reading(20, { processor: busy(30), cores: [busy(30)], memory: memory(30), load: [5, 5, 5] }),
    start,
  );
  const summary = summarize([one, other]);
  t.is(summary.cpuPercent, 20);
  t.like(summary.cpu, { userPercent: 20, idlePercent: 80 });
  t.like(summary.cores[0], { userPercent: 20 });
  t.is(summary.memoryAvailableBytes, 20);
  t.deepEqual(summary.load, [5, 5, 5]);
  t.is(summary.atMs, 20_000);
  t.is(summarize([one]), one);
});

// Samples on disk: truncated, damaged and excess files.

interface Sample {
  readonly atMs: number;
  readonly text: string;
}

const spanMs = 1_000;

async function scratch(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-samples-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return join(dir, "samples");
}

function open(dir: string, bounds: { maxFiles?: number; maxBytes?: number } = {}): SampleFiles<Sample> {
  return new SampleFiles({ dir, level: "day", spanMs, maxFiles: 3, maxBytes: 1_000_000, ...bounds });
}

const sampleAt = (atMs: number): Sample => ({ atMs, text: `sample of ${atMs}` });
const times = (samples: readonly Sample[]): number[] => samples.map(({ atMs }) => atMs);

test("appended samples are read in order, from a time on, and also by another process", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  t.deepEqual(await files.newest(10, 0), [], "nothing yet");
  await files.append([sampleAt(100), sampleAt(900)]);
  await files.append([sampleAt(950)]);
  await files.append([sampleAt(1_100)]);
  t.deepEqual(await open(dir).newest(Infinity, 0), [100, 900, 950, 1_100].map(sampleAt));
  t.deepEqual(times(await files.newest(Infinity, 900)), [900, 950, 1_100]);
  t.deepEqual(times(await files.newest(1, 0)), [1_100], "no more files than needed");
  t.is((await stat(join(dir, "day-0"))).mode & 0o777, 0o600);
});

test("old files are removed by age and by size, and the current one stays", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  for (let span = 0; span < 6; span++) await files.append([sampleAt(span * spanMs)]);
  t.deepEqual((await readdir(dir)).toSorted(), ["day-3", "day-4", "day-5"]);
  const small = open(dir, { maxBytes: 1 });
  await small.append([sampleAt(5_500)]);
  t.deepEqual(await readdir(dir), ["day-5"]);
  t.deepEqual(times(await small.newest(Infinity, 0)), [5_000, 5_500]);
});

test("a clock that was set back loses nothing that is written afterwards", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  await files.append([sampleAt(1_000_000)]);
  await files.append([sampleAt(5_000)]);
  t.deepEqual(times(await files.newest(Infinity, 0)), [5_000, 1_000_000]);
});

test("a file truncated at any byte keeps all complete frames before it, and later ones", async (t) => {
  const dir = await scratch(t);
  const file = join(dir, "day-0");
  await open(dir).append([sampleAt(1)]);
  const first = (await stat(file)).size;
  await open(dir).append([sampleAt(2)]);
  const whole = await readFile(file);
  for (let length = first; length < whole.length; length++) {
    await writeFile(file, whole.subarray(0, length));
    t.deepEqual(times(await open(dir).newest(Infinity, 0)), [1], `${length} bytes`);
    await open(dir).append([sampleAt(3)]);
    t.deepEqual(times(await open(dir).newest(Infinity, 0)), [1, 3], `after ${length} bytes`);
  }
});

test("a damaged byte costs at most its frame and the following ones of its file", async (t) => {
  const dir = await scratch(t);
  const file = join(dir, "day-0");
  await open(dir).append([sampleAt(1)]);
  const first = (await stat(file)).size;
  await open(dir).append([sampleAt(2)]);
  await open(dir).append([sampleAt(1_500)]);
  const whole = await readFile(file);
  for (let at = 0; at < whole.length; at++) {
    const damaged = Buffer.from(whole);
    damaged.writeUInt8((damaged[at] ?? 0) ^ 0x40, at);
    await writeFile(file, damaged);
    const read = await open(dir).newest(Infinity, 0);
    t.deepEqual(
      read.filter(({ atMs }) => atMs > 2 || (atMs === 1 && at >= first)),
      at >= first ? [sampleAt(1), sampleAt(1_500)] : [sampleAt(1_500)],
      `byte ${at}`,
    );
    t.true(read.every(({ atMs, text }) => text === `sample of ${atMs}`));
  }
});

test("a failed write is reported, and hides nothing", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  await files.append([sampleAt(1)]);
  await appendFile(join(dir, "other"), "not ours");
  await truncate(join(dir, "day-0"), 0);
  await rm(dir, { recursive: true });
  await writeFile(dir, "a file in its place");
  await t.throwsAsync(files.append([sampleAt(2)]));
  t.deepEqual(await files.newest(Infinity, 0), []);
});

// Names of processes in lists.

const known = { runs: [], controlGroups: new Map() };

test("a Node process has the name of its program, whatever Node calls its threads", async (t) => {
  const child = spawn(process.execPath, ["-e", "console.log(0); setInterval(() => 0, 1e6)"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  await nextEvent(child.stdout, "data");
  const { pid = 0 } = child;
  t.log(await readFile(`/proc/${pid}/comm`, "utf8"));
  const scan = new ProcessScan();
  t.is(scan.owners([pid], known).get(pid)?.name, "node");
  t.is(scan.processes(known).find((process) => process.pid === pid)?.name, "node");
});

test("a process of another program has the kernel's name", async (t) => {
  const child = spawn("/bin/sh", ["-c", "echo 0; read line"], { stdio: ["pipe", "pipe", "ignore"] });
  t.teardown(() => child.kill("SIGKILL"));
  await nextEvent(child.stdout, "data");
  const { pid = 0 } = child;
  const comm = (await readFile(`/proc/${pid}/comm`, "utf8")).trim();
  t.is(new ProcessScan().owners([pid], known).get(pid)?.name, comm);
});

test("a process's cached data is valid for its stated time, and never for another process with its PID", (t) => {
  const memo = new ProcessMemo<string>();
  let reads = 0;
  const get = (startTicks: number, forMs: number): string =>
    memo.get({ pid: 7, startTicks }, () => ({ value: `${startTicks} ${(reads += 1)}`, forMs }));
  t.is(get(1, 0), "1 1");
  t.is(get(1, Infinity), "1 2");
  t.is(get(1, Infinity), "1 2");
  t.is(get(2, Infinity), "2 3");
  memo.retain(new Set([7]));
  t.is(get(2, Infinity), "2 3");
  memo.retain(new Set([8]));
  t.is(get(2, Infinity), "2 4");
});
