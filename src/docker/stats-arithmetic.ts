/** From counters to usage, as the docker command line computes it (docker/cli, `stats_helpers.go`). */

/** What the engine answers, as far as it is used; what it cannot measure is left out or null. */
export interface EngineStats {
  /** RFC 3339; year 1 when nothing runs. */
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

/** What a container used by a certain time; what cannot be measured is absent. */
export interface ContainerCounters {
  /** When it was measured, in milliseconds of some clock. */
  readonly atMs: number;
  /** Processor time since it was started. */
  readonly cpuNanos: number;
  /** That of the whole machine, idle time included, and how many processors had it. */
  readonly system?: { readonly cpuNanos: number; readonly processors: number };
  /** Without the page cache that the kernel gives up first. */
  readonly memoryBytes: number;
  readonly processes?: number;
  /** Since it was started; absent with the host's network. */
  readonly networkReceivedBytes?: number;
  readonly networkSentBytes?: number;
  readonly blockReadBytes: number;
  readonly blockWrittenBytes: number;
}

/** What a container uses; what cannot be measured is absent. */
export interface ContainerUsage extends Omit<ContainerCounters, "atMs" | "cpuNanos" | "system"> {
  /** Percent of one processor. */
  readonly cpuPercent: number;
}

/** From two looks at the same run of a container. */
export function usageBetween(before: ContainerCounters, after: ContainerCounters): ContainerUsage {
  const { atMs: _, cpuNanos: __, system: ___, ...counters } = after;
  return { cpuPercent: cpuPercent(before, after), ...counters };
}

function cpuPercent(before: ContainerCounters, after: ContainerCounters): number {
  const used = after.cpuNanos - before.cpuNanos;
  if (used <= 0) return 0;
  const systemNanos = (after.system?.cpuNanos ?? 0) - (before.system?.cpuNanos ?? 0);
  // Where nothing is known of the whole machine, the clock says how much there was.
  if (after.system === undefined || systemNanos <= 0) {
    return (used / (Math.max(after.atMs - before.atMs, 1) * 1e6)) * 100;
  }
  return (used / systemNanos) * after.system.processors * 100;
}

/** `undefined`: it does not run. */
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

/** `total_inactive_file` is the word of cgroup v1, `inactive_file` that of v2, where v1 has another meaning for it. */
export function withoutCache(usageBytes: number, stats: Readonly<Record<string, number>>): number {
  const cache = stats["total_inactive_file"] ?? stats["inactive_file"] ?? 0;
  return cache < usageBytes ? usageBytes - cache : usageBytes;
}

/** cgroup v1 capitalizes the words, v2 does not. */
function blockBytes({ blkio_stats: stats }: EngineStats, operation: "read" | "write"): number {
  return (stats?.io_service_bytes_recursive ?? [])
    .filter(({ op }) => op.toLowerCase() === operation)
    .reduce((sum, { value }) => sum + value, 0);
}
