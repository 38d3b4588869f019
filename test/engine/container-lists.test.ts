/**
 * Lists of containers: concurrent reads share requests, and each has a status line. Usage of containers: the
 * arithmetic with known numbers, and real working containers.
 */
import test from "ava";
import { ContainerCache } from "../../src/engine/container-cache.ts";
import type { ContainerRecord } from "../../src/engine/container-record.ts";
import { ContainerSampler } from "../../src/engine/container-sampler.ts";
import { type DockerEngine, type OperationOptions, createDockerEngine } from "../../src/engine/engine.ts";
import { CachedInventory } from "../../src/engine/inventory-list.ts";
import { statusLine, type StatusFacts } from "../../src/engine/status-line.ts";
import { SvcError } from "../../src/errors.ts";
import { onShareOf, shareOwner } from "../../src/lib/share-owner.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { sampleContainers } from "../../src/engine/container-stats.ts";
import { CgroupReader } from "../../src/engine/cgroup-counters.ts";
import { engineCounters, type EngineStats, usageBetween } from "../../src/engine/stats-arithmetic.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";
import { ContainerPrograms } from "../../src/engine/container-programs.ts";
import { noLog } from "../../src/lib/log.ts";

// Reads during a storm of events and concurrent reads: their delays, and the number of engine requests.

/** An engine that responds as `answer` says, and has no containers. */
function engineOf(answer: () => Promise<unknown>): DockerEngine {
  const call = async (): Promise<never> => {
    await answer();
    throw new SvcError("not_found", "no such container");
  };
  return { call, operate: call } as unknown as DockerEngine;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const event = (id: string) => ({ type: "container", action: "start", id, attributes: {}, timeMs: 0 });

function cacheOver(engine: DockerEngine): ContainerCache {
  return new ContainerCache({
    engine,
    now: Date.now,
    nextRevision: () => 0,
    onChange: () => undefined,
    onError: (error) => {
      throw error;
    },
  });
}

test("a list does not wait for the end of a storm of events", async (t) => {
  let storms = true;
  let asked = 0;
  const cache: ContainerCache = cacheOver(
    engineOf(async () => {
      asked++;
      await turn();
      if (storms) cache.onEvent(event(`c${asked}`));
    }),
  );
  cache.onEvent(event("first"));
  // It returns although events keep arriving while it waits.
  await cache.untilCaughtUp(60_000);
  t.true(asked > 0);
  t.true(asked < 1_000, "it reads only about earlier events");
  storms = false;
});

test("concurrent events are one request per container", async (t) => {
  let asked = 0;
  const cache = cacheOver(
    engineOf(async () => {
      asked++;
      await turn();
    }),
  );
  for (let round = 0; round < 10; round++) for (const id of ["one", "other"]) cache.onEvent(event(id));
  await cache.untilCaughtUp(60_000);
  t.is(asked, 2);
});

test("a container without a response from the engine delays neither a list nor others", async (t) => {
  // The deadline of a read keeps no process running.
  const alive = setTimeout(() => undefined, 60_000);
  t.teardown(() => clearTimeout(alive));
  const first = Promise.withResolvers<undefined>();
  let asked = 0;
  const cache = cacheOver(engineOf(() => (++asked === 1 ? first.promise : turn())));
  cache.onEvent(event("stuck"));
  await turn();
  cache.onEvent(event("other"));
  await cache.untilCaughtUp(10);
  t.is(asked, 2, "another one is requested in between");
  t.true(cache.lagMs > 0);
  first.resolve(undefined);
  await cache.untilCaughtUp(60_000);
  t.is(cache.lagMs, 0);
});

test("a constantly changing list is one request at a time for all its readers", async (t) => {
  let [asked, now, most] = [0, 0, 0];
  const list = new CachedInventory({
    load: async () => {
      asked++;
      most = Math.max(most, ++now);
      await turn();
      now--;
      return [asked];
    },
    nextRevision: () => asked,
    maxAgeMs: 1_000,
  });
  const reads: Promise<unknown>[] = [];
  for (let reader = 0; reader < 20; reader++) {
    list.invalidate();
    reads.push(list.read());
    if (reader % 5 === 0) await turn();
  }
  await Promise.all(reads);
  t.is(most, 1);
  t.true(asked <= 6, String(asked));
  const before = asked;
  list.invalidate();
  t.deepEqual((await list.read()).items, [before + 1], "it includes earlier changes");
});

test("a list for all users does not use the slots of the first requester", async (t) => {
  const list = new CachedInventory({
    load: () => Promise.resolve([shareOwner()]),
    nextRevision: () => 0,
    maxAgeMs: 60_000,
  });
  const [user, root] = await Promise.all([onShareOf(1001, () => list.read()), list.read()]);
  t.deepEqual([user.items, root.items], [[0], [0]]);
});

test("the usage of containers is measured for all users, without the slots of the first requester", async (t) => {
  const asked: unknown[] = [];
  const engine = {
    operate: (_what: string, _work: unknown, { waitsFor }: OperationOptions) => {
      asked.push([shareOwner(), waitsFor]);
      return Promise.reject(new SvcError("not_found", "no such container"));
    },
  } as DockerEngine;
  // Its PID is known and not that of a container, so the engine measures its usage.
  const state = {
    containerNow: (id: string) => (id === "known" ? ({ pid: 1 } as ContainerRecord) : undefined),
  };
  const sampler = new ContainerSampler({ engine, state });
  await onShareOf(1001, () => sampler.sample(["known", "unknown"]));
  t.deepEqual(
    asked,
    ["known", "known", "unknown"].map(() => [0, "measurement"]),
  );
});

test("a change of a list while it is read is in the next response", async (t) => {
  let happened = 0;
  const list: CachedInventory<number> = new CachedInventory({
    load: async () => {
      const seen = happened;
      happened = 1;
      if (seen === 0) list.invalidate();
      await turn();
      return [seen];
    },
    nextRevision: () => happened,
    maxAgeMs: 60_000,
  });
  await list.read();
  t.deepEqual((await list.read()).items, [1]);
});

test("twenty requests for the usage of containers share one window", async (t) => {
  let asked = 0;
  const engine = engineOf(async () => {
    asked++;
    await turn();
  });
  const sampler = new ContainerSampler({ engine, state: { containerNow: () => undefined } });
  await Promise.all(Array.from({ length: 20 }, () => sampler.sample(["a", "b"])));
  t.is(asked, 2, "each container once");
});

// Status lines as the engine prints them.

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;
const startedAtMs = Date.UTC(2026, 0, 1);
const facts: StatusFacts = {
  state: "running",
  health: "none",
  exitCode: 0,
  startedAtMs,
  finishedAtMs: startedAtMs,
};

for (const [elapsedMs, text] of [
  [0, "Less than a second"],
  [999, "Less than a second"],
  [second, "1 second"],
  [59.9 * second, "59 seconds"],
  [minute, "About a minute"],
  [2 * minute, "2 minutes"],
  [59.9 * minute, "59 minutes"],
  [hour, "About an hour"],
  [1.5 * hour, "2 hours"],
  [47 * hour, "47 hours"],
  [2 * day, "2 days"],
  [13 * day, "13 days"],
  [14 * day, "2 weeks"],
  [60 * day, "2 months"],
  [800 * day, "2 years"],
] as const) {
  test(`after ${elapsedMs} ms: ${text}`, (t) => {
    t.is(statusLine(facts, startedAtMs + elapsedMs).text, `Up ${text}`);
  });
}

for (const [more, text] of [
  [{ state: "paused", health: "healthy" }, "Up 5 seconds (Paused)"],
  [{ health: "healthy" }, "Up 5 seconds (healthy)"],
  [{ health: "unhealthy" }, "Up 5 seconds (unhealthy)"],
  [{ health: "starting" }, "Up 5 seconds (health: starting)"],
  [{ state: "exited", exitCode: 137 }, "Exited (137) 5 seconds ago"],
  [{ state: "restarting", exitCode: 1 }, "Restarting (1) 5 seconds ago"],
  [{ state: "created", startedAtMs: undefined }, "Created"],
  [{ state: "dead" }, "Dead"],
  [{ state: "removing" }, "Removal In Progress"],
] as const) {
  test(text, (t) => t.is(statusLine({ ...facts, ...more }, startedAtMs + 5 * second).text, text));
}

test("a line stays valid until its stated time, and not longer", (t) => {
  for (let atMs = startedAtMs; atMs < startedAtMs + 3 * 365 * day;) {
    const { text, validUntilMs } = statusLine(facts, atMs);
    t.true(validUntilMs > atMs);
    t.is(statusLine(facts, validUntilMs - 1).text, text);
    atMs = validUntilMs + Math.floor((validUntilMs - atMs) * Math.min(20, (atMs - startedAtMs) / hour));
  }
});

// Usage of containers.

const shared = sharedEngine();
const MiB = 1 << 20;

function sample(more: Partial<EngineStats>, atMs = 0): EngineStats {
  return {
    read: new Date(Date.UTC(2026, 0, 1) + atMs).toISOString(),
    cpu_stats: {
      cpu_usage: { total_usage: 1_000_000_000 },
      system_cpu_usage: 50_000_000_000,
      online_cpus: 4,
    },
    memory_stats: { usage: 100 * MiB },
    ...more,
  };
}

function containerUsage(before: EngineStats, after: EngineStats) {
  const [earlier, later] = [engineCounters(before), engineCounters(after)];
  return earlier && later && usageBetween(earlier, later);
}

const later = {
  cpu_stats: { cpu_usage: { total_usage: 1_250_000_000 }, system_cpu_usage: 52_000_000_000, online_cpus: 4 },
};

test("CPU time is a share of the host's total", (t) => {
  // A quarter of a second of the two seconds that four CPUs had in half a second.
  t.is(containerUsage(sample({}), sample(later, 500))?.cpuPercent, 50);
});

test("without the host's total, CPU time is a share of elapsed time", (t) => {
  const cpu = (total: number) => ({ cpu_stats: { cpu_usage: { total_usage: total } } });
  t.is(containerUsage(sample(cpu(1e9)), sample(cpu(1.25e9), 500))?.cpuPercent, 50);
});

test("CPUs are counted by their own counters if an old engine does not report their number", (t) => {
  const counters = { total_usage: 1_250_000_000, percpu_usage: [1, 2] };
  const after = { cpu_stats: { cpu_usage: counters, system_cpu_usage: 52_000_000_000 } };
  t.is(containerUsage(sample({}), sample(after, 500))?.cpuPercent, 25);
});

for (const [version, stats, expected] of [
  ["v1", { total_inactive_file: 30 * MiB, inactive_file: 1 * MiB, cache: 60 * MiB }, 70 * MiB],
  ["v2", { inactive_file: 30 * MiB, file: 60 * MiB }, 70 * MiB],
  ["v1, with more cache than usage", { total_inactive_file: 200 * MiB }, 100 * MiB],
  ["v2, without its cache", {}, 100 * MiB],
] as const) {
  test(`memory is without the inactive page cache: cgroup ${version}`, (t) => {
    const after = sample({ memory_stats: { usage: 100 * MiB, stats } }, 500);
    t.is(containerUsage(sample({}), after)?.memoryBytes, expected);
  });
}

for (const [version, ops] of [
  ["v1", ["Read", "Write", "Sync", "Total"]],
  ["v2", ["read", "write", "rios", "dbytes"]],
] as const) {
  test(`blocks of all devices are summed: cgroup ${version}`, (t) => {
    const device = ops.map((op, at) => ({ op, value: (at + 1) * 1000 }));
    const after = sample({ blkio_stats: { io_service_bytes_recursive: [...device, ...device] } }, 500);
    t.like(containerUsage(sample({}), after), { blockReadBytes: 2000, blockWrittenBytes: 4000 });
  });
}

test("networks are summed; without its own network, nothing is reported", (t) => {
  const networks = { eth0: { rx_bytes: 1, tx_bytes: 2 }, eth1: { rx_bytes: 10, tx_bytes: 20 } };
  const own = containerUsage(sample({}), sample({ networks }, 500));
  t.like(own, { networkReceivedBytes: 11, networkSentBytes: 22 });
  t.false("networkReceivedBytes" in (containerUsage(sample({}), sample({}, 500)) ?? {}));
});

test("a container that did not run all the time has no usage", (t) => {
  t.is(containerUsage(sample({ read: "0001-01-01T00:00:00Z" }), sample({}, 500)), undefined);
  t.is(containerUsage(sample({}), sample({ memory_stats: {} }, 500)), undefined);
});

const id = "0123456789abcdef".repeat(4);

/** The kernel's files for a container with PID 7. */
async function kernelWith(
  files: Readonly<Record<string, string>>,
): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), "svc-cgroup-"));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(dir, path)), { recursive: true });
    await writeFile(join(dir, path), text);
  }
  for (const process of ["7", "self"]) {
    await mkdir(join(dir, "proc", process, "ns"), { recursive: true });
    await symlink(`net:[${process}]`, join(dir, "proc", process, "ns/net"));
  }
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true }) };
}

const netDev = [
  "Inter-|   Receive                                                |  Transmit",
  " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed",
  "    lo:     999       9    0    0    0     0          0         0      999       9    0    0    0     0       0          0",
  "  eth0:    1000      10    0    0    0     0          0         0      200       3    0    0    0     0       0          0",
  "  eth1:7 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0",
].join("\n");

const kernels = {
  v1: {
    "proc/7/cgroup": ["memory", "cpu,cpuacct", "pids", "blkio"]
      .map((controllers, at) => `${at + 2}:${controllers}:/docker/${id}`)
      .join("\n"),
    [`cgroup/cpuacct/docker/${id}/cpuacct.usage`]: "123000\n",
    [`cgroup/memory/docker/${id}/memory.usage_in_bytes`]: "5000\n",
    [`cgroup/memory/docker/${id}/memory.stat`]: "cache 3000\ninactive_file 1\ntotal_inactive_file 2000\n",
    [`cgroup/pids/docker/${id}/pids.current`]: "3\n",
    [`cgroup/blkio/docker/${id}/blkio.throttle.io_service_bytes_recursive`]:
      "8:0 Read 100\n8:0 Write 20\n8:0 Sync 120\n8:16 Read 1\n8:16 Write 2\nTotal 123\n",
  },
  v2: {
    "proc/7/cgroup": `0::/system.slice/docker-${id}.scope/init.scope\n`,
    [`cgroup/system.slice/docker-${id}.scope/cpu.stat`]: "usage_usec 123\nuser_usec 100\n",
    [`cgroup/system.slice/docker-${id}.scope/memory.current`]: "5000\n",
    [`cgroup/system.slice/docker-${id}.scope/memory.stat`]: "anon 3000\ninactive_file 2000\n",
    [`cgroup/system.slice/docker-${id}.scope/pids.current`]: "3\n",
    [`cgroup/system.slice/docker-${id}.scope/io.stat`]:
      "8:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n",
  },
} as const;

for (const [version, files] of Object.entries(kernels)) {
  test(`the kernel's own files return the same: cgroup ${version}`, async (t) => {
    await using kernel = await kernelWith({ ...files, "proc/7/net/dev": netDev });
    const reader = new CgroupReader({
      procDir: join(kernel.dir, "proc"),
      cgroupDir: join(kernel.dir, "cgroup"),
    });
    t.like(await reader.read(id, 7), {
      cpuNanos: 123_000,
      memoryBytes: 3000,
      processes: 3,
      blockReadBytes: 101,
      blockWrittenBytes: 22,
      networkReceivedBytes: 1007,
      networkSentBytes: 205,
    });
    t.is(await reader.read(id.replace("0", "f"), 7), undefined, "another container has the PID now");
    t.is(await reader.read(id, 8), undefined);
  });
}

dockerTest(
  `a working container and a sleeping one are distinguished in one window${needsDocker}`,
  async (t) => {
    await using engine = createDockerEngine({ socket: shared().socket });
    await shared().images.build("svc/stats:1");
    const busy = await shared().run("busy", {
      Image: "svc/stats:1",
      Cmd: ["/bin/sh", "-c", "while :; do :; done"],
    });
    const idle = await shared().run("idle", { Image: "svc/stats:1" });
    const made = (
      await shared().request("POST", "/containers/create?name=made", { Image: "svc/stats:1" })
    ).expect(201);
    const { Id: stopped } = made as { Id: string };
    const elsewhere = new CgroupReader({ procDir: "/nowhere" });
    const byEngine = await sampleContainers(engine, [busy, idle, stopped], { cgroups: elsewhere });
    t.deepEqual([...byEngine.keys()].sort(), [busy, idle].sort());
    const startedAtMs = performance.now();
    const usages = await sampleContainers(engine, [busy, idle, stopped, "nobody"]);
    const tookMs = performance.now() - startedAtMs;
    t.deepEqual([...usages.keys()].sort(), [busy, idle].sort());
    const working = usages.get(busy);
    t.log(`${Math.round(tookMs)} ms`);
    for (const by of [byEngine, usages]) t.true((by.get(idle)?.cpuPercent ?? 100) < 5);
    // Other processes use the host, too.
    for (const cgroups of [elsewhere, new CgroupReader()]) {
      await eventually(async () => {
        const { cpuPercent = 0 } = (await sampleContainers(engine, [busy], { cgroups })).get(busy) ?? {};
        assert.ok(cpuPercent > 1, `${cpuPercent}`);
      });
    }
    // The kernel and the engine report the same, once the container's start process has freed its memory.
    await eventually(async () => {
      const memoryBy = async (cgroups?: CgroupReader): Promise<number> =>
        (await sampleContainers(engine, [busy], cgroups && { cgroups })).get(busy)?.memoryBytes ?? Number.NaN;
      const [kernels, engines] = await Promise.all([memoryBy(), memoryBy(elsewhere)]);
      const ratio = kernels / engines;
      assert.ok(ratio > 0.5 && ratio < 2, `${ratio}`);
    });
    t.is(usages.get(idle)?.processes, byEngine.get(idle)?.processes);
    t.is(working?.processes, 1);
    t.true((working?.memoryBytes ?? 0) > 10_000);
    t.is(typeof working?.networkReceivedBytes, "number");
    t.true(tookMs >= 490 && tookMs < 10_000, `${tookMs} ms`);
  },
);

interface Inspected {
  readonly Running: boolean;
  readonly Pid: number;
  readonly ExitCode: number | null;
}

/** An engine that returns the values of `first` in turn, and then the actual state of the process. */
function programsOf(pid: number, isOver: () => boolean, first: Inspected[]) {
  const written: string[] = [];
  const inspect = (): Promise<Inspected> => {
    const isRunning = !isOver();
    const now = { Running: isRunning, Pid: isRunning ? pid : 0, ExitCode: isRunning ? null : 129 };
    return Promise.resolve(first.shift() ?? now);
  };
  const docker = { getExec: () => ({ inspect }) };
  const programs = new ContainerPrograms({
    engine: { call: (_what: string, work: (engine: typeof docker) => unknown) => work(docker) } as never,
    events: { listen: () => ({ [Symbol.dispose]: () => undefined }) },
    store: {
      all: () => [],
      write: (statements) => {
        written.push(...statements.map(({ sql }) => sql));
        return Promise.resolve([] as never);
      },
    },
    executor: {} as never,
    log: noLog,
  });
  return { programs, written };
}

test("a program that is canceled before the engine starts it is killed once it has started", async (t) => {
  const child = spawn("sleep", ["1000"], { stdio: "ignore" });
  let isOver = false;
  const closed = once(child, "close").then(() => (isOver = true));
  t.teardown(() => child.kill("SIGKILL"));
  const { programs, written } = programsOf(child.pid ?? 0, () => isOver, [
    { Running: false, Pid: 0, ExitCode: null },
    { Running: true, Pid: 0, ExitCode: null },
  ]);
  // A part of every process's cgroup represents the container's.
  await programs.end("exec", ":");
  t.true(isOver, "it still runs");
  await closed;
  t.is(child.signalCode, "SIGHUP");
  t.regex(written.join(), /DELETE FROM container_programs/);
});

test("an exited program is forgotten at once", async (t) => {
  const { programs, written } = programsOf(0, () => true, [{ Running: false, Pid: 0, ExitCode: 127 }]);
  await programs.end("exec", ":");
  t.is(written.length, 1);
});
