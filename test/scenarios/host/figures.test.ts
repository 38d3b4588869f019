/** The host's figures, ports and processes compared with other programs, and signals while PIDs are reused. */
import { spawn, execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test, { type ExecutionContext } from "ava";
import { MonitorService, type CpuTimes, type SystemMetrics } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { readOtherFigures, type OtherFigures, type Ticks } from "../../host/support/other-figures.ts";
import { Crowd } from "../../support/crowd.ts";
import { startDaemon, isRoot, needsRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import {
  assertBetween,
  rowsOfPorts,
  rowsOfProcesses,
  rowsOfPs,
  rowsOfSs,
  type Rows,
} from "../../support/other-readers.ts";

// Every figure of a sample compared with what other programs read at the same time on a busy host. With SVC_LONG=1 over
// 50 samples. Counters (bytes, packets, operations) must lie between their readings before and after. Shares may differ
// by 5 points plus what changed between the two readings; memory by 1 % of the total; averages of load and pressure by
// one step of the kernel's average.

const sampleCount = process.env["SVC_LONG"] === undefined ? 5 : 50;
const intervalMs = 2_000;
const sharePoints = 5;
const memoryShare = 0.01;
/** The kernel's averages over 10 s, renewed every 2 s: 1 - e^(-2/10). */
const pressurePoints = 19;
/** Nearly half of a core, to distinguish it from a full and an idle one. */
const busy = "setInterval(() => { for (const endMs = Date.now() + 40; Date.now() < endMs;); }, 100)";
const keptDisks = /^(loop|ram|zram)\d/;

interface Pair {
  readonly sample: SystemMetrics;
  readonly atMs: number;
  readonly other: OtherFigures;
}

test(`every figure of ${sampleCount} samples equals the readings of other programs`, async (t) => {
  t.timeout(20 * 60_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-load-"));
  const write = `while :; do dd if=/dev/zero of=${dir}/file bs=1M count=32 conv=fsync 2>/dev/null; sleep 0.3; done`;
  const load = [
    spawn("sh", ["-c", write], { stdio: "ignore", detached: true }),
    spawn(process.execPath, ["-e", busy], { stdio: "ignore", detached: true }),
  ];
  t.teardown(async () => {
    for (const { pid } of load) if (pid !== undefined) process.kill(-pid, "SIGKILL");
    await rm(dir, { recursive: true, force: true, maxRetries: 5 });
  });
  await using daemon = await startDaemon({ config: `[metrics]\ninterval_secs = ${intervalMs / 1000}\n` });
  const began = await readOtherFigures();
  const pairs: Pair[] = [];
  let compared = 0;
  const farthest = new Map<string, number>();
  for await (const sample of daemon.client(MonitorService).streamSystemMetrics({})) {
    const atMs = sample.sampledAt === undefined ? 0 : timestampMs(sample.sampledAt);
    const now = { sample, atMs, other: await readOtherFigures() };
    const before = pairs.at(-1);
    if (before !== undefined && atMs - before.atMs < 1.5 * intervalMs && sample.cpu !== undefined) {
      compareCounters(t, before, now);
      compareLevels(t, before, now);
      for (const [what, points] of compareShares(t, before, now)) {
        farthest.set(what, Math.max(points, farthest.get(what) ?? 0));
      }
      compared += 1;
      // A missed sample has its share of the time.
    } else pairs.length = 0;
    pairs.push(now);
    if (compared === sampleCount) break;
  }
  t.is(compared, sampleCount);
  compareOperations(t, began, pairs);
  t.log([...farthest].map(([what, points]) => `${what} ${points.toFixed(1)}`).join(", "));
});

function expectBetween(
  t: ExecutionContext,
  what: string,
  value: number | bigint | undefined,
  [first = 0, last = 0]: readonly (number | undefined)[],
  slack = 0,
): void {
  const [low, high] = [Math.min(first, last) - slack, Math.max(first, last) + slack];
  t.true(
    value !== undefined && Number(value) >= low && Number(value) <= high,
    `${what} is ${value}, others read ${first} before and ${last} after`,
  );
}

/** Values that only grow. */
function compareCounters(
  t: ExecutionContext,
  { other: first, ...before }: Pair,
  { sample, atMs, other: last }: Pair,
): void {
  const secs = (atMs - before.atMs) / 1000;
  const kept = [...first.disks.keys()].filter((name) => last.disks.has(name) && !keptDisks.test(name));
  for (const name of kept)
    t.true(
      sample.disks.some((disk) => disk.name === name),
      `disk ${name}`,
    );
  for (const { name, readBytes, writtenBytes, ...rates } of sample.disks) {
    const [was = [], is = []] = [first.disks.get(name), last.disks.get(name)];
    expectBetween(t, `${name} read`, readBytes, [was[1], is[1]]);
    expectBetween(t, `${name} written`, writtenBytes, [was[3], is[3]]);
    const old = before.sample.disks.find((disk) => disk.name === name);
    if (old === undefined) continue;
    t.true(isNear(rates.readPerSec, Number(readBytes - old.readBytes) / secs), `${name} read per second`);
    t.true(
      isNear(rates.writtenPerSec, Number(writtenBytes - old.writtenBytes) / secs),
      `${name} written per second`,
    );
  }
  for (const each of sample.interfaces) {
    const [was, is] = [first.interfaces.get(each.name), last.interfaces.get(each.name)];
    // Other tests create and remove interfaces, and their engines reuse the names.
    if (was === undefined || is === undefined || /^svct\d+$/.test(each.name)) continue;
    const values = [each.receivedBytes, each.sentBytes, each.errors, each.dropped];
    for (const [at, value] of values.entries())
      expectBetween(t, `${each.name} ${at}`, value, [was[at], is[at]]);
    const old = before.sample.interfaces.find(({ name }) => name === each.name);
    if (old === undefined) continue;
    t.true(isNear(each.receivedPerSec, Number(each.receivedBytes - old.receivedBytes) / secs), each.name);
    t.true(isNear(each.sentPerSec, Number(each.sentBytes - old.sentBytes) / secs), each.name);
  }
  for (const name of first.interfaces.keys()) {
    if (name === "lo" || !last.interfaces.has(name)) continue;
    t.true(
      sample.interfaces.some((each) => each.name === name),
      `interface ${name}`,
    );
  }
  expectBetween(t, "uptime", sample.uptimeSecs, [Math.floor(first.uptimeSecs), last.uptimeSecs]);
}

/** Reads and writes are reported only as rates: summed over all samples they equal the other counters. */
function compareOperations(t: ExecutionContext, began: OtherFigures, pairs: readonly Pair[]): void {
  const [first, last, lastButOne] = [pairs[0], pairs.at(-1), pairs.at(-2)];
  if (first === undefined || last === undefined || lastButOne === undefined) return;
  for (const { name } of first.sample.disks) {
    for (const [key, at] of [
      ["readsPerSec", 0],
      ["writesPerSec", 2],
    ] as const) {
      const counted = pairs.slice(1).reduce((sum, { sample, atMs }, index) => {
        const rate = sample.disks.find((disk) => disk.name === name)?.[key] ?? 0;
        return sum + (rate * (atMs - (pairs[index]?.atMs ?? atMs))) / 1000;
      }, 0);
      const of = ({ disks }: OtherFigures): number => disks.get(name)?.[at] ?? 0;
      const bounds = [of(lastButOne.other) - of(first.other), of(last.other) - of(began)];
      expectBetween(t, `${name} ${key}`, counted, bounds, 0.05 * counted + 1);
    }
  }
}

function compareLevels(t: ExecutionContext, { other: first }: Pair, { sample, other: last }: Pair): void {
  const total = last.memory.get("MemTotal") ?? 0;
  t.is(Number(sample.memoryTotalBytes), total);
  t.is(Number(sample.swapTotalBytes), last.memory.get("SwapTotal") ?? -1);
  for (const [name, value] of [
    ["MemAvailable", sample.memoryAvailableBytes],
    ["MemFree", sample.memoryFreeBytes],
    ["Buffers", sample.memoryBuffersBytes],
    ["Cached", sample.memoryCachedBytes],
    ["Slab", sample.memorySlabBytes],
    ["Dirty", sample.memoryDirtyBytes],
  ] as const) {
    expectBetween(t, name, value, [first.memory.get(name), last.memory.get(name)], memoryShare * total);
  }
  const used = ({ memory }: OtherFigures): number =>
    (memory.get("SwapTotal") ?? 0) - (memory.get("SwapFree") ?? 0);
  expectBetween(t, "swap", sample.swapUsedBytes, [used(first), used(last)], memoryShare * total);
  const loads = [sample.load1, sample.load5, sample.load15];
  for (const [at, value] of loads.entries())
    expectBetween(t, `load ${at}`, value, [first.load[at], last.load[at]], 0.01);
  for (const [what, pressure] of [
    ["cpu", sample.cpuPressure],
    ["memory", sample.memoryPressure],
    ["io", sample.ioPressure],
  ] as const) {
    t.is(pressure !== undefined, last.pressure.has(`${what} some`), what);
    if (pressure === undefined) continue;
    const { some10, some60, some300, full10, full60, full300 } = pressure;
    for (const [kind, values] of [
      ["some", [some10, some60, some300]],
      ["full", [full10, full60, full300]],
    ] as const) {
      const [was, is] = [first, last].map((each) => each.pressure.get(`${what} ${kind}`));
      t.is(values[0] !== undefined, is !== undefined, `${what} ${kind}`);
      for (const [at, value] of values.entries())
        if (value !== undefined)
          expectBetween(t, `pressure ${what} ${kind} ${at}`, value, [was?.[at], is?.[at]], pressurePoints);
    }
  }
  t.true(sample.filesystems.some(({ path }) => path === "/"));
  for (const { path, ...values } of sample.filesystems) {
    const [was, is] = [first.filesystems.get(path), last.filesystems.get(path)];
    if (was === undefined || is === undefined) continue;
    const size = Number(values.sizeBytes);
    t.is(size, is[0] ?? -1, path);
    expectBetween(t, `${path} used`, values.usedBytes, [was[1], is[1]], memoryShare * size);
    expectBetween(t, `${path} available`, values.availableBytes, [was[2], is[2]], memoryShare * size);
    t.is(Number(values.inodes ?? 0), is[3] ?? -1, path);
    if (values.inodes !== undefined)
      expectBetween(
        t,
        `${path} inodes`,
        values.usedInodes,
        [was[4], is[4]],
        memoryShare * Number(values.inodes),
      );
  }
  expectBetween(
    t,
    "processes",
    sample.processes,
    [first.processes, last.processes],
    0.1 * last.processes + 20,
  );
  t.deepEqual(sample.temperatures.length, last.temperatures.length);
  for (const [at, { celsius }] of sample.temperatures.entries())
    expectBetween(t, "temperature", celsius, [first.temperatures[at], last.temperatures[at]], 5);
}

/** The differences of the shares of each kind from the other readings. */
function compareShares(t: ExecutionContext, before: Pair, now: Pair): [string, number][] {
  const { sample, atMs, other } = now;
  const elapsedMs = atMs - before.atMs;
  const apartMs = other.endedMs - atMs + (before.other.endedMs - before.atMs);
  const mostPoints = sharePoints + (100 * apartMs) / elapsedMs;
  const found: [string, number][] = [];
  const compare = (what: string, ours: number | undefined, theirs: number): void => {
    const points = Math.abs((ours ?? Number.NaN) - theirs);
    found.push([what, points]);
    t.true(
      points <= mostPoints,
      `${what} is ${ours} %, others read ${theirs} %; at most ${mostPoints} points of difference are allowed`,
    );
  };
  const compareTimes = (what: string, ours: CpuTimes | undefined, was: Ticks, is: Ticks): void => {
    const shares = sharesOf(was, is);
    for (const [kind, theirs] of Object.entries(shares))
      compare(`${what} ${kind}`, ours?.[kind as keyof typeof shares], theirs);
  };
  compareTimes("all", sample.cpu, before.other.processor, other.processor);
  const { idlePercent, iowaitPercent } = sharesOf(before.other.processor, other.processor);
  compare("busy", sample.cpuPercent, 100 - idlePercent - iowaitPercent);
  t.is(sample.cpuCount, other.cores.length);
  t.is(sample.cores.length, other.cores.length);
  for (const [at, core] of sample.cores.entries())
    compareTimes(`core ${at}`, core, before.other.cores[at] ?? [], other.cores[at] ?? []);
  for (const { name, busyPercent } of sample.disks) {
    const busyMs = (other.busyMs.get(name) ?? 0) - (before.other.busyMs.get(name) ?? 0);
    const share = (100 * busyMs) / (other.endedMs - before.other.endedMs);
    compare(`${name} busy`, busyPercent, Math.min(100, share));
  }
  return found;
}

function sharesOf(was: Ticks, is: Ticks) {
  const since = is.map((ticks, at) => ticks - (was[at] ?? 0));
  const [user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0] = since;
  const total = user + nice + system + idle + iowait + irq + softirq + steal;
  const share = (ticks: number): number => (100 * ticks) / total;
  return {
    userPercent: share(user + nice),
    systemPercent: share(system),
    iowaitPercent: share(iowait),
    irqPercent: share(irq + softirq),
    stealPercent: share(steal),
    idlePercent: share(idle),
  };
}

/** Rates use a monotonic clock; the samples' times use the wall clock, which may be set. */
function isNear(rate: number | undefined, other: number): boolean {
  return rate !== undefined && Math.abs(rate - other) <= 0.05 * other + 1;
}

// A daemon's lists of ports and processes compared with `ss` and `ps`, while many start and exit. With SVC_LONG=1: 20
// times over 2,000 processes and 5,000 sockets.

const isLong = process.env["SVC_LONG"] !== undefined;
const size = isLong ? { processes: 2_000, sockets: 5_000 } : { processes: 150, sockets: 400 };
const snapshots = isLong ? 20 : 4;
const deadlineMs = 120_000;

(isRoot ? test : test.skip)(
  `ports and processes are those of ss and ps in ${snapshots} snapshots of ${size.processes} and ${size.sockets}${needsRoot}`,
  async (t) => {
    t.timeout(30 * 60_000);
    await using daemon = await startDaemon();
    const ports = async (): Promise<Rows> =>
      rowsOfPorts((await daemon.client(MonitorService).listListeningPorts({})).ports);
    const processes = async (): Promise<Rows> => {
      const client = daemon.client(ProcessService);
      return rowsOfProcesses((await client.listProcesses({ kernelThreads: true, limit: 10_000 })).processes);
    };
    await using crowd = await Crowd.start(size);
    for (let n = 0; n < snapshots; n += 1) {
      const part = n === 0 ? 1 : 0.5 + Math.random() / 2;
      const now = {
        processes: Math.round(size.processes * part),
        sockets: Math.round(size.sockets * part),
      };
      await crowd.become(now);
      const own = (rows: Rows, pidOf: RegExp): string[] =>
        rows.filter((row) => crowd.pids.has(Number(pidOf.exec(row)?.[1]))).toSorted();
      for (const [what, ours, theirs, pidOf, count] of [
        ["ports", ports, rowsOfSs, / (\d+)$/, now.sockets],
        ["processes", processes, rowsOfPs, /^(\d+) /, now.processes],
      ] as const) {
        // The test's own processes do not change, so one comparison is enough.
        const rows = await ours();
        t.is(own(rows, pidOf).length, count, what);
        t.deepEqual(own(rows, pidOf), own(await theirs(), pidOf), what);
        // All others start and exit.
        await eventually(async () => {
          const before = await theirs();
          assertBetween(before, await ours(), await theirs());
        }, deadlineMs);
      }
    }
  },
);

// A signal never reaches a process that reused the intended PID.

const run = promisify(execFile);
const program = fileURLToPath(new URL("../../host/support/pid-reuse.ts", import.meta.url));
const attempts = process.env["SVC_LONG"] === undefined ? 200 : 1_000;

(isRoot ? test : test.skip)(
  `no wrong process is hit in ${attempts} reuses of a pid${needsRoot}`,
  async (t) => {
    t.timeout(10 * 60_000);
    const namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    const { stdout } = await run("unshare", [...namespace, process.execPath, program, String(attempts)]);
    t.deepEqual(JSON.parse(stdout), {
      known: { pid_reused: attempts },
      unknown: { not_found: attempts },
      ending: { spared: attempts },
    });
  },
);
