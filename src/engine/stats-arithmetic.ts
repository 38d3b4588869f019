/** Computes usage from counters like the docker command line (docker/cli, `stats_helpers.go`). */

/** The parts of the engine's response that svc uses; the engine omits or nulls what it cannot measure. */
export interface EngineStats {
  /** RFC 3339; year 1 when nothing is running. */
  readonly read: string;
  readonly cpu_stats: {
    readonly cpu_usage: { readonly total_usage: number; readonly percpu_usage?: readonly number[] | null };
    readonly system_cpu_usage?: number;
    readonly online_cpus?: number;
  };
  readonly memory_stats: {
    readonly usage?: number;
    readonly stats?: Readonly<Record<string, number>> | null;
  };
  readonly pids_stats?: { readonly current?: number };
  readonly networks?: Readonly<
    Record<string, { readonly rx_bytes: number; readonly tx_bytes: number }>
  > | null;
  readonly blkio_stats?: {
    readonly io_service_bytes_recursive?: readonly { readonly op: string; readonly value: number }[] | null;
  };
}

/** A container's counters at one moment; what cannot be measured is absent. */
export interface ContainerCounters {
  /** Time of the measurement, in milliseconds of any clock. */
  readonly atMs: number;
  /** CPU time since the start. */
  readonly cpuNanos: number;
  /** CPU time of the whole host, idle time included, and the number of CPUs. */
  readonly system?: { readonly cpuNanos: number; readonly processors: number };
  /** Without the page cache that the kernel reclaims first. */
  readonly memoryBytes: number;
  readonly processes?: number;
  /** Since the start; absent with the host's network. */
  readonly networkReceivedBytes?: number;
  readonly networkSentBytes?: number;
  readonly blockReadBytes: number;
  readonly blockWrittenBytes: number;
}

/** A container's resource usage; what cannot be measured is absent. */
export interface ContainerUsage extends Omit<ContainerCounters, "atMs" | "cpuNanos" | "system"> {
  /** Percent of one CPU. */
  readonly cpuPercent: number;
}

/** Computes usage from two readings of the same run of a container. */
export function usageBetween(before: ContainerCounters, after: ContainerCounters): ContainerUsage {
  const { atMs: _, cpuNanos: __, system: ___, ...counters } = after;
  return { cpuPercent: cpuPercent(before, after), ...counters };
}

function cpuPercent(before: ContainerCounters, after: ContainerCounters): number {
  const used = after.cpuNanos - before.cpuNanos;
  if (used <= 0) return 0;
  const systemNanos = (after.system?.cpuNanos ?? 0) - (before.system?.cpuNanos ?? 0);
  // Without the host's CPU time, use the elapsed time.
  if (after.system === undefined || systemNanos <= 0) {
    return (used / (Math.max(after.atMs - before.atMs, 1) * 1e6)) * 100;
  }
  return (used / systemNanos) * after.system.processors * 100;
}

/** `undefined` if the container is not running. */
export function engineCounters(stats: EngineStats): ContainerCounters | undefined {
  const { cpu_stats: cpu, memory_stats: memory } = stats;
  const atMs = Date.parse(stats.read);
  if (!(atMs > 0) || memory.usage === undefined) return undefined;
  const processors = cpu.online_cpus ?? cpu.cpu_usage.percpu_usage?.length ?? 0;
  const networks = stats.networks && Object.values(stats.networks);
  const processes = stats.pids_stats?.current;
  return {
    atMs,
    cpuNanos: cpu.cpu_usage.total_usage,
    ...(cpu.system_cpu_usage !== undefined &&
      processors > 0 && { system: { cpuNanos: cpu.system_cpu_usage, processors } }),
    memoryBytes: withoutCache(memory.usage, memory.stats ?? {}),
    ...(processes !== undefined && { processes }),
    ...(networks && {
      networkReceivedBytes: networks.reduce((sum, { rx_bytes: bytes }) => sum + bytes, 0),
      networkSentBytes: networks.reduce((sum, { tx_bytes: bytes }) => sum + bytes, 0),
    }),
    blockReadBytes: blockBytes(stats, "read"),
    blockWrittenBytes: blockBytes(stats, "write"),
  };
}

/** cgroup v1 calls it `total_inactive_file`, v2 `inactive_file`, which means something else in v1. */
export function withoutCache(usageBytes: number, stats: Readonly<Record<string, number>>): number {
  const cache = stats["total_inactive_file"] ?? stats["inactive_file"] ?? 0;
  return cache < usageBytes ? usageBytes - cache : usageBytes;
}

/** cgroup v1 capitalizes the operations, v2 does not. */
function blockBytes({ blkio_stats: stats }: EngineStats, operation: "read" | "write"): number {
  return (stats?.io_service_bytes_recursive ?? [])
    .filter(({ op }) => op.toLowerCase() === operation)
    .reduce((sum, { value }) => sum + value, 0);
}
