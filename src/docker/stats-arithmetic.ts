/** From the engine's counters to usage, as the docker command line computes it (docker/cli, `stats_helpers.go`). */

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

/** What a container uses; what cannot be measured is absent. */
export interface ContainerUsage {
  /** Percent of one processor. */
  readonly cpuPercent: number;
  /** Without the page cache. */
  readonly memoryBytes: number;
  readonly processes?: number;
  /** Since it was started; absent when its network is the host's or another container's. */
  readonly networkReceivedBytes?: number;
  readonly networkSentBytes?: number;
  readonly blockReadBytes: number;
  readonly blockWrittenBytes: number;
}

/** From two samples of the same container. `undefined`: it did not run all the time between. */
export function containerUsage(before: EngineStats, after: EngineStats): ContainerUsage | undefined {
  const elapsedMs = Date.parse(after.read) - Date.parse(before.read);
  const isRunning = Date.parse(before.read) > 0 && after.memory_stats.usage !== undefined;
  if (!isRunning || !(elapsedMs > 0)) return undefined;
  const networks = after.networks && Object.values(after.networks);
  const processes = after.pids_stats?.current;
  return {
    cpuPercent: cpuPercent(before, after, elapsedMs),
    memoryBytes: memoryBytes(after.memory_stats),
    ...(processes !== undefined && { processes }),
    ...(networks && {
      networkReceivedBytes: networks.reduce((sum, { rx_bytes: bytes }) => sum + bytes, 0),
      networkSentBytes: networks.reduce((sum, { tx_bytes: bytes }) => sum + bytes, 0),
    }),
    blockReadBytes: blockBytes(after, "read"),
    blockWrittenBytes: blockBytes(after, "write"),
  };
}

function cpuPercent(before: EngineStats, after: EngineStats, elapsedMs: number): number {
  const used = after.cpu_stats.cpu_usage.total_usage - before.cpu_stats.cpu_usage.total_usage;
  if (used <= 0) return 0;
  const system = (after.cpu_stats.system_cpu_usage ?? 0) - (before.cpu_stats.system_cpu_usage ?? 0);
  const processors = after.cpu_stats.online_cpus ?? after.cpu_stats.cpu_usage.percpu_usage?.length ?? 0;
  // A single sample may come without what the whole machine used: then the clock says how much there was.
  if (system <= 0 || processors === 0) return (used / (elapsedMs * 1e6)) * 100;
  return (used / system) * processors * 100;
}

/** Without the inactive page cache, which the kernel gives up first: `total_inactive_file` in cgroup v1, `inactive_file` in v2. */
function memoryBytes({ usage = 0, stats }: EngineStats["memory_stats"]): number {
  const cache = stats?.["total_inactive_file"] ?? stats?.["inactive_file"] ?? 0;
  return cache < usage ? usage - cache : usage;
}

/** cgroup v1 capitalizes the words, v2 does not. */
function blockBytes({ blkio_stats: stats }: EngineStats, operation: "read" | "write"): number {
  return (stats?.io_service_bytes_recursive ?? [])
    .filter(({ op }) => op.toLowerCase() === operation)
    .reduce((sum, { value }) => sum + value, 0);
}
