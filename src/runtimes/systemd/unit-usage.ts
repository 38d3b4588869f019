/** Resource usage of a unit, from systemd's readings of its control group. */
import type { RuntimeUsage } from "../capabilities.ts";
import type { UnitProperties } from "./systemd.ts";

export const usageProperties = [
  "CPUUsageNSec",
  "MemoryCurrent",
  "TasksCurrent",
  "IOReadBytes",
  "IOWriteBytes",
];

/** Values from here up, or text, mean that this host does not count it. */
const unknownAbove = 2 ** 63;

export function usageBetween(before: UnitProperties, after: UnitProperties, elapsedMs: number): RuntimeUsage {
  const [cpuBefore, cpuAfter] = [numberOf(before, "CPUUsageNSec"), numberOf(after, "CPUUsageNSec")];
  const cpuMs = cpuBefore === undefined || cpuAfter === undefined ? undefined : (cpuAfter - cpuBefore) / 1e6;
  const all: { [K in keyof RuntimeUsage]: number | undefined } = {
    // A lower value than before means a restart.
    cpuPercent: cpuMs === undefined ? undefined : Math.round((Math.max(0, cpuMs) / elapsedMs) * 1000) / 10,
    memoryBytes: numberOf(after, "MemoryCurrent"),
    processes: numberOf(after, "TasksCurrent"),
    diskReadBytes: numberOf(after, "IOReadBytes"),
    diskWrittenBytes: numberOf(after, "IOWriteBytes"),
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function numberOf(unit: UnitProperties, property: string): number | undefined {
  const value = Number(unit[property] || Number.NaN);
  return Number.isFinite(value) && value < unknownAbove ? value : undefined;
}
