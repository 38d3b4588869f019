/** One sample of the host: the kernel's counters as shares and rates since the previous sample. */
import type { Filesystem } from "./filesystems.ts";
import type { DiskCounters, InterfaceCounters, KernelCounters, ProcessorTicks } from "./kernel-counters.ts";

/** Percentages that add up to 100. */
export interface ProcessorShares {
  readonly userPercent: number;
  readonly systemPercent: number;
  readonly iowaitPercent: number;
  readonly irqPercent: number;
  readonly stealPercent: number;
  readonly idlePercent: number;
}

export interface DiskSample {
  readonly name: string;
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** Per second. */
  readonly readPerSec?: number;
  readonly writtenPerSec?: number;
  readonly readsPerSec?: number;
  readonly writesPerSec?: number;
  readonly busyPercent?: number;
}

export interface InterfaceSample extends InterfaceCounters {
  /** Bytes per second. */
  readonly receivedPerSec: number;
  readonly sentPerSec: number;
}

/** Names as in the contract's `SystemMetrics`; sizes in bytes. */
export interface HostSample extends Pick<KernelCounters, "load" | "pressure" | "temperatures"> {
  /** Unix milliseconds. */
  readonly atMs: number;
  readonly cpuPercent: number;
  readonly cpuCount: number;
  /** Absent in the first sample, as are all shares and rates. */
  readonly cpu?: ProcessorShares;
  readonly cores: readonly ProcessorShares[];
  readonly memoryTotalBytes: number;
  readonly memoryAvailableBytes: number;
  readonly memoryFreeBytes?: number;
  readonly memoryBuffersBytes?: number;
  readonly memoryCachedBytes?: number;
  readonly memorySlabBytes?: number;
  readonly memoryDirtyBytes?: number;
  readonly swapTotalBytes: number;
  readonly swapUsedBytes: number;
  readonly filesystems: readonly Filesystem[];
  readonly disks: readonly DiskSample[];
  readonly interfaces: readonly InterfaceSample[];
  readonly processes?: number;
  readonly uptimeSecs: number;
}

/** The counters at one moment. */
export interface HostReading {
  /** Unix milliseconds. */
  readonly atMs: number;
  readonly monotonicMs: number;
  readonly counters: KernelCounters;
  readonly filesystems: readonly Filesystem[];
  readonly processes?: number;
}

/** @param before the earlier reading that shares and rates refer to */
export function hostSample(reading: HostReading, before: HostReading): HostSample {
  const { atMs, counters, filesystems, processes } = reading;
  const secs = (reading.monotonicMs - before.monotonicMs) / 1000;
  const { memory, cores, load, pressure, temperatures, uptimeSecs } = counters;
  const cpu = sharesOf(counters.processor, before.counters.processor);
  const coresBefore = before.counters.cores;
  const bytes = (name: string): number => memory[name] ?? 0;
  return {
    atMs,
    cpuPercent: cpu === undefined ? 0 : rounded(100 - cpu.idlePercent - cpu.iowaitPercent),
    cpuCount: cores.length,
    ...(cpu && { cpu }),
    // A CPU that appeared or disappeared has shifted the numbers.
    cores:
      cores.length === coresBefore.length
        ? cores.flatMap((core, at) => sharesOf(core, coresBefore[at] ?? core) ?? [])
        : [],
    load,
    memoryTotalBytes: bytes("MemTotal"),
    memoryAvailableBytes: memory["MemAvailable"] ?? bytes("MemFree"),
    ...present("memoryFreeBytes", memory["MemFree"]),
    ...present("memoryBuffersBytes", memory["Buffers"]),
    ...present("memoryCachedBytes", memory["Cached"]),
    ...present("memorySlabBytes", memory["Slab"]),
    ...present("memoryDirtyBytes", memory["Dirty"]),
    swapTotalBytes: bytes("SwapTotal"),
    swapUsedBytes: bytes("SwapTotal") - bytes("SwapFree"),
    pressure,
    filesystems,
    disks: counters.disks.map((disk) => diskSample(disk, byName(before.counters.disks, disk.name), secs)),
    interfaces: counters.interfaces.map((one) =>
      interfaceSample(one, byName(before.counters.interfaces, one.name), secs),
    ),
    temperatures,
    ...(processes !== undefined && { processes }),
    uptimeSecs: Math.floor(uptimeSecs),
  };
}

/** `undefined` if no tick passed. A counter that decreased (iowait may) counts as unchanged. */
function sharesOf(now: ProcessorTicks, before: ProcessorTicks): ProcessorShares | undefined {
  const since = (key: keyof ProcessorTicks): number => Math.max(0, now[key] - before[key]);
  const total =
    since("user") + since("system") + since("idle") + since("iowait") + since("irq") + since("steal");
  if (total === 0) return undefined;
  const share = (key: keyof ProcessorTicks): number => rounded((since(key) * 100) / total);
  return {
    userPercent: share("user"),
    systemPercent: share("system"),
    iowaitPercent: share("iowait"),
    irqPercent: share("irq"),
    stealPercent: share("steal"),
    idlePercent: share("idle"),
  };
}

function diskSample(disk: DiskCounters, before: DiskCounters | undefined, secs: number): DiskSample {
  const { name, readBytes, writtenBytes } = disk;
  if (before === undefined || secs <= 0) return { name, readBytes, writtenBytes };
  const rate = (key: "readBytes" | "writtenBytes" | "reads" | "writes"): number =>
    rounded(Math.max(0, disk[key] - before[key]) / secs);
  return {
    ...{ name, readBytes, writtenBytes },
    readPerSec: rate("readBytes"),
    writtenPerSec: rate("writtenBytes"),
    readsPerSec: rate("reads"),
    writesPerSec: rate("writes"),
    busyPercent: rounded(Math.min(100, Math.max(0, disk.busyMs - before.busyMs) / 10 / secs)),
  };
}

function interfaceSample(
  now: InterfaceCounters,
  before: InterfaceCounters | undefined,
  secs: number,
): InterfaceSample {
  const rate = (key: "receivedBytes" | "sentBytes"): number =>
    before === undefined || secs <= 0 ? 0 : rounded(Math.max(0, now[key] - before[key]) / secs);
  return { ...now, receivedPerSec: rate("receivedBytes"), sentPerSec: rate("sentBytes") };
}

function byName<T extends { readonly name: string }>(all: readonly T[], name: string): T | undefined {
  return all.find((one) => one.name === name);
}

function present<K extends string>(key: K, value: number | undefined): Partial<Record<K, number>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, number>);
}

/** Two decimals are finer than the kernel's counters over a few seconds, and short in the stored samples. */
function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}

/**
 * Merges samples into one: shares, rates and levels become averages, all other values are those of the last sample.
 * @param samples oldest first, at least one
 */
export function summarize(samples: readonly HostSample[]): HostSample {
  const last = samples.at(-1);
  if (last === undefined) throw new Error("no samples to summarize");
  if (samples.length === 1) return last;
  const shares = samples.flatMap(({ cpu }) => cpu ?? []);
  const withSameCores = samples.filter(({ cores }) => cores.length === last.cores.length);
  return {
    ...last,
    cpuPercent: average(samples.map(({ cpuPercent }) => cpuPercent)),
    ...(shares.length > 0 && { cpu: averaged(shares) }),
    cores: last.cores.map((_, at) => averaged(withSameCores.flatMap(({ cores }) => cores[at] ?? []))),
    memoryAvailableBytes: Math.round(average(samples.map((sample) => sample.memoryAvailableBytes))),
    swapUsedBytes: Math.round(average(samples.map((sample) => sample.swapUsedBytes))),
    disks: last.disks.map((disk) =>
      averageKeys(disk, sameName(samples, "disks", disk.name), [
        ...(["readPerSec", "writtenPerSec", "readsPerSec", "writesPerSec", "busyPercent"] as const),
      ]),
    ),
    interfaces: last.interfaces.map((one) =>
      averageKeys(one, sameName(samples, "interfaces", one.name), ["receivedPerSec", "sentPerSec"]),
    ),
  };
}

function sameName<K extends "disks" | "interfaces">(
  samples: readonly HostSample[],
  key: K,
  name: string,
): HostSample[K][number][] {
  return samples.flatMap((sample) => byName<HostSample[K][number]>(sample[key], name) ?? []);
}

function averaged(all: readonly ProcessorShares[]): ProcessorShares {
  const [first] = all;
  if (first === undefined) throw new Error("no shares to average");
  return averageKeys(first, all, Object.keys(first) as (keyof ProcessorShares)[]);
}

/** `one` with the averages of `all` for these keys, where any of them has it. */
function averageKeys<T extends object>(one: T, all: readonly T[], keys: readonly (keyof T)[]): T {
  const averages = keys.flatMap((key) => {
    const values = all.map((each) => each[key]).filter((value) => typeof value === "number");
    return values.length === 0 ? [] : [[key, average(values)] as const];
  });
  return { ...one, ...Object.fromEntries(averages) };
}

function average(values: readonly number[]): number {
  return rounded(values.reduce((sum, value) => sum + value, 0) / values.length);
}
