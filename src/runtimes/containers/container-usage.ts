/** Resource usage of apps from that of their containers. */
import type { ContainerSampler } from "../../engine/container-sampler.ts";
import type { ContainerUsage } from "../../engine/stats-arithmetic.ts";
import { SvcError } from "../../errors.ts";
import type { RuntimeUsage } from "../capabilities.ts";

/**
 * Measures all over one interval, each app with the sum of its containers, without apps that are not running. Returns
 * an empty result if the engine is unreachable, so that other apps can still be measured.
 * @param containers IDs of running containers, by app
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
