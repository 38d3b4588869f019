/** The host's load as text: one line for each resource. */
import { isInternalInterface } from "../../lib/internal-interface.ts";
import { diskPercent } from "../../lib/disk-share.ts";
import type { HostMetrics } from "../client/calls.ts";
import type { Color, Paint } from "./color.ts";
import { renderFields, type Field } from "./table.ts";
import { formatBytes, formatDuration, formatPercent } from "./units.ts";

const bars = "▁▂▃▄▅▆▇█";
/** From this share on, a resource is highlighted. */
const fullPercent = 90;
/** In characters. */
const longestPath = 32;

/** @param samples oldest first, at least one; several samples are also shown as sparklines */
export function hostLines(samples: readonly HostMetrics[], paint: Paint): string {
  const now = samples.at(-1);
  if (now === undefined) return "";
  const spark = (value: (sample: HostMetrics) => number): string =>
    samples.length < 2 ? "" : `  ${sparkline(samples.map(value))}`;
  const usedShare = (sample: HostMetrics): number =>
    share(sample.memoryTotalBytes - sample.memoryAvailableBytes, sample.memoryTotalBytes);
  const fields: Field[] = [
    ["Uptime", formatDuration(now.uptimeSecs * 1000)],
    [
      "CPU",
      `${formatPercent(now.cpuPercent)} of ${now.cpuCount}${cpuParts(now)}${spark((s) => s.cpuPercent)}`,
      colorOf(now.cpuPercent),
    ],
    ["Load", [now.load1, now.load5, now.load15].map((load) => load.toFixed(2)).join("  ")],
    [
      "Memory",
      `${used(now.memoryTotalBytes - now.memoryAvailableBytes, now.memoryTotalBytes)}${spark(usedShare)}`,
      colorOf(usedShare(now)),
    ],
    ...(now.swapTotalBytes > 0 ? [["Swap", used(now.swapUsedBytes, now.swapTotalBytes)] as const] : []),
    ...now.filesystems.map(({ path, sizeBytes, usedBytes, availableBytes, inodes, usedInodes }): Field => {
      const percent = diskPercent({ usedBytes, availableBytes });
      const inodePercent = share(usedInodes ?? 0, inodes ?? 0);
      const files = inodePercent >= fullPercent ? `, ${formatPercent(inodePercent)} of its files` : "";
      return [
        `Disk ${shortPath(path)}`,
        `${formatPercent(percent)} of ${formatBytes(sizeBytes)}, ${formatBytes(availableBytes)} free${files}`,
        colorOf(Math.max(percent, inodePercent)),
      ];
    }),
    ...now.disks.map(({ name, readPerSec = 0, writtenPerSec = 0, busyPercent }): Field => {
      const busy = busyPercent === undefined ? "" : `, busy ${formatPercent(busyPercent)}`;
      return [`Device ${name}`, `${rate(readPerSec)} read, ${rate(writtenPerSec)} written${busy}`];
    }),
    ...now.interfaces
      .filter(
        ({ name, receivedBytes, sentBytes }) => !isInternalInterface(name) && receivedBytes + sentBytes > 0,
      )
      .map(({ name, receivedPerSec, sentPerSec }): Field => [
        `Network ${name}`,
        `${rate(receivedPerSec)} in, ${rate(sentPerSec)} out`,
      ]),
    ...now.temperatures.map(({ name, celsius }): Field => [`Sensor ${name}`, `${celsius.toFixed(0)} °C`]),
    ...(now.processes === undefined ? [] : [["Processes", String(now.processes)] as const]),
  ];
  return renderFields(fields, paint);
}

/** Keeps the end of a long path, so that the labels stay narrow. */
function shortPath(path: string): string {
  return path.length <= longestPath ? path : `…${path.slice(1 - longestPath)}`;
}

function cpuParts({ cpu }: HostMetrics): string {
  if (cpu === undefined) return "";
  const parts = [
    ["user", cpu.userPercent],
    ["system", cpu.systemPercent],
    ["I/O wait", cpu.iowaitPercent],
    ["steal", cpu.stealPercent],
  ] as const;
  const shown = parts.filter(([, percent]) => percent >= 0.05);
  return shown.length === 0
    ? ""
    : ` (${shown.map(([name, percent]) => `${name} ${formatPercent(percent)}`).join(", ")})`;
}

function used(bytes: number, total: number): string {
  return `${formatBytes(bytes)} of ${formatBytes(total)} (${formatPercent(share(bytes, total))})`;
}

function rate(bytesPerSec: number): string {
  return `${formatBytes(Math.round(bytesPerSec))}/s`;
}

function share(part: number, whole: number): number {
  return whole > 0 ? (part * 100) / whole : 0;
}

function colorOf(percent: number): Color | undefined {
  return percent >= fullPercent ? "red" : undefined;
}

/** Percentages, one column each. */
function sparkline(percents: readonly number[]): string {
  return percents
    .map((percent) => bars[Math.min(bars.length - 1, Math.floor((percent * bars.length) / 100))] ?? "")
    .join("");
}
