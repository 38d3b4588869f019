/** Resource usage of apps, for Prometheus. */
import type { RuntimeUsage } from "../../runtimes/capabilities.ts";
import { writeFamily } from "./exposition.ts";

const families: readonly [keyof RuntimeUsage, string, "counter" | "gauge", string, number][] = [
  ["cpuPercent", "svc_app_cpu_usage_ratio", "gauge", "CPUs that an app used at its last sample.", 0.01],
  ["memoryBytes", "svc_app_memory_bytes", "gauge", "Memory of an app.", 1],
  ["processes", "svc_app_processes", "gauge", "Processes of an app.", 1],
  [
    "diskReadBytes",
    "svc_app_disk_read_bytes_total",
    "counter",
    "Bytes that the processes of an app have read from storage.",
    1,
  ],
  [
    "diskWrittenBytes",
    "svc_app_disk_written_bytes_total",
    "counter",
    "Bytes that the processes of an app have written to storage.",
    1,
  ],
  ["networkReceivedBytes", "svc_app_network_receive_bytes_total", "counter", "Bytes received by an app.", 1],
  ["networkSentBytes", "svc_app_network_transmit_bytes_total", "counter", "Bytes sent by an app.", 1],
];

/** @param states of all apps, by id */
export function writeApps(
  usages: ReadonlyMap<string, RuntimeUsage>,
  states: ReadonlyMap<string, string>,
): string {
  const up = [...states].map(([app, state]) => ({ labels: { app }, value: Number(state === "RUNNING") }));
  return [
    writeFamily("svc_app_up", "gauge", "1 while an app runs, else 0.", up),
    ...families.map(([key, name, type, help, factor]) =>
      writeFamily(
        name,
        type,
        help,
        [...usages].flatMap(([app, usage]) => {
          const value = usage[key];
          return value === undefined ? [] : [{ labels: { app }, value: value * factor }];
        }),
      ),
    ),
  ].join("");
}
