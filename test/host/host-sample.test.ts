/** From two readings to one sample, and from many samples to one. */
import test from "ava";
import { hostSample, summarize, type HostReading } from "../../src/host/metrics/host-sample.ts";
import type { KernelCounters } from "../../src/host/metrics/kernel-counters.ts";

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
