/** The host's newest sample for Prometheus, under the names of node_exporter where it has the same metric. */
import type { HostReadings } from "../../host/metrics/host-metrics.ts";
import { writeFamily, type Sample } from "./exposition.ts";

const ticksPerSecond = 100;

export function writeHost({ sample, cores }: HostReadings): string {
  const { load, filesystems, disks, interfaces, temperatures } = sample;
  const gauge = (name: string, help: string, ...samples: Sample[]): string =>
    writeFamily(name, "gauge", help, samples);
  const optional = (name: string, help: string, value: number | undefined): string =>
    value === undefined ? "" : gauge(name, help, { value });
  const perFilesystem = (
    name: string,
    help: string,
    of: (one: (typeof filesystems)[number]) => number | undefined,
  ) =>
    gauge(
      name,
      help,
      ...filesystems.flatMap((one) => {
        const value = of(one);
        const labels = { device: one.device, fstype: one.type, mountpoint: one.path };
        return value === undefined ? [] : [{ labels, value }];
      }),
    );
  const perDevice = <T extends { name: string }>(
    name: string,
    help: string,
    all: readonly T[],
    of: (one: T) => number,
  ): string => {
    const samples = all.map((one) => ({ labels: { device: one.name }, value: of(one) }));
    return writeFamily(name, "counter", help, samples);
  };
  return [
    writeFamily(
      "node_cpu_seconds_total",
      "counter",
      "Seconds that the CPUs spent in each mode.",
      cores.flatMap((core, cpu) =>
        Object.entries(core).map(([mode, ticks]: [string, number]) => ({
          labels: { cpu, mode },
          value: ticks / ticksPerSecond,
        })),
      ),
    ),
    ...load.map((value, at) => {
      const minutes = [1, 5, 15][at] ?? 0;
      return gauge(`node_load${minutes}`, `${minutes}m load average.`, { value });
    }),
    gauge("node_memory_MemTotal_bytes", "Memory of the host.", { value: sample.memoryTotalBytes }),
    gauge("node_memory_MemAvailable_bytes", "Memory that programs could be given without swapping.", {
      value: sample.memoryAvailableBytes,
    }),
    optional("node_memory_MemFree_bytes", "Memory that nothing uses.", sample.memoryFreeBytes),
    optional("node_memory_Buffers_bytes", "Memory that holds blocks of disks.", sample.memoryBuffersBytes),
    optional("node_memory_Cached_bytes", "Memory that holds files.", sample.memoryCachedBytes),
    optional("node_memory_Slab_bytes", "Memory of the kernel's own objects.", sample.memorySlabBytes),
    optional("node_memory_Dirty_bytes", "Memory that waits to be written.", sample.memoryDirtyBytes),
    gauge("node_memory_SwapTotal_bytes", "Swap of the host.", { value: sample.swapTotalBytes }),
    gauge("node_memory_SwapFree_bytes", "Swap that nothing uses.", {
      value: sample.swapTotalBytes - sample.swapUsedBytes,
    }),
    perFilesystem("node_filesystem_size_bytes", "Size of filesystems.", (one) => one.sizeBytes),
    perFilesystem("node_filesystem_avail_bytes", "Space available to users.", (one) => one.availableBytes),
    perFilesystem("node_filesystem_free_bytes", "Free space.", (one) => one.sizeBytes - one.usedBytes),
    perFilesystem("node_filesystem_files", "Inodes.", (one) => one.inodes),
    perFilesystem("node_filesystem_files_free", "Free inodes.", ({ inodes, usedInodes }) =>
      inodes === undefined ? undefined : inodes - (usedInodes ?? 0),
    ),
    perDevice("node_disk_read_bytes_total", "Bytes read from disks.", disks, (one) => one.readBytes),
    perDevice("node_disk_written_bytes_total", "Bytes written to disks.", disks, (one) => one.writtenBytes),
    perDevice("node_network_receive_bytes_total", "Bytes received.", interfaces, (one) => one.receivedBytes),
    perDevice("node_network_transmit_bytes_total", "Bytes sent.", interfaces, (one) => one.sentBytes),
    gauge(
      "node_hwmon_temp_celsius",
      "What sensors say.",
      ...temperatures.map(({ name: sensor, celsius: value }) => ({ labels: { sensor }, value })),
    ),
    gauge("node_boot_time_seconds", "When the host was started, in unix seconds.", {
      value: Math.round(sample.atMs / 1000) - sample.uptimeSecs,
    }),
    optional("svc_host_processes", "Processes, kernel threads included.", sample.processes),
  ].join("");
}
