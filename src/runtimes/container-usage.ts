/** What the containers of apps use, as what the apps use. */
import type { ContainerSampler } from "../docker/container-sampler.ts";
import type { ContainerUsage } from "../docker/stats-arithmetic.ts";
import { SvcError } from "../errors.ts";
import type { RuntimeUsage } from "./runtime.ts";

/**
 * All in one window, each app with the sum of its containers; an app of which nothing runs is absent. An engine that is
 * away measures nothing, which must not keep other apps from being measured.
 * @param containers ids of the running ones, by app
 */
export async function sampleApps(
  sampler: ContainerSampler,
  containers: ReadonlyMap<string, readonly string[]>,
  signal?: AbortSignal,
): Promise<ReadonlyMap<string, RuntimeUsage>> {
  try {
    const usages = await sampler.sample([...containers.values()].flat(), signal);
    return new Map(
      [...containers].flatMap(([appId, ids]) => {
        const own = ids.flatMap((id) => usages.get(id) ?? []);
        return own.length === 0 ? [] : [[appId, sumOf(own)] as const];
      }),
    );
  } catch (error) {
    if (error instanceof SvcError && error.code === "unavailable") return new Map();
    throw error;
  }
}

function sumOf(usages: readonly ContainerUsage[]): RuntimeUsage {
  const sum = (key: keyof ContainerUsage): number | undefined => {
    const values = usages.flatMap((usage) => usage[key] ?? []);
    return values.length === 0 ? undefined : values.reduce((total, value) => total + value, 0);
  };
  const usage = {
    cpuPercent: Math.round((sum("cpuPercent") ?? 0) * 10) / 10,
    memoryBytes: sum("memoryBytes"),
    processes: sum("processes"),
    diskReadBytes: sum("blockReadBytes"),
    diskWrittenBytes: sum("blockWrittenBytes"),
    networkReceivedBytes: sum("networkReceivedBytes"),
    networkSentBytes: sum("networkSentBytes"),
  };
  return Object.fromEntries(Object.entries(usage).filter(([, value]) => value !== undefined));
}
