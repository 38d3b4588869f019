/** What the engine keeps on the disk, as it measures it itself: expensive, so only on demand. */
import type { DockerEngine } from "./engine.ts";

const timeoutMs = 120_000;

/** What is used of the engine's answer to `GET /system/df`; lists that are empty may be null. */
interface EngineDiskUsage {
  LayersSize?: number;
  Images?: { Id: string; Size: number; SharedSize: number }[] | null;
  Containers?: { Id: string; SizeRw?: number }[] | null;
  Volumes?: { Name: string; UsageData?: { Size: number; RefCount: number } | null }[] | null;
  BuildCache?: BuildCacheRecord[] | null;
}

/** A record of the build cache. */
export interface BuildCacheRecord {
  ID: string;
  Description?: string;
  InUse: boolean;
  Shared: boolean;
  Size: number;
}

export interface DiskUsage {
  /** All layers together, those that several images share once. */
  readonly imagesBytes: number;
  /** What removing an image alone would free, by id. */
  readonly ownBytesOfImage: ReadonlyMap<string, number>;
  readonly containers: { readonly count: number; readonly sizeBytes: number };
  /** By name; 0 where the engine cannot tell. */
  readonly bytesOfVolume: ReadonlyMap<string, number>;
  readonly buildCache: readonly BuildCacheRecord[];
}

/** @throws SvcError `unavailable` */
export async function measureDisk(engine: DockerEngine, signal?: AbortSignal): Promise<DiskUsage> {
  const usage = await engine.operate(
    "measure its disk usage",
    (docker) => docker.df() as Promise<EngineDiskUsage>,
    { timeoutMs, signal },
  );
  const containers = usage.Containers ?? [];
  return {
    imagesBytes: usage.LayersSize ?? 0,
    ownBytesOfImage: new Map(
      (usage.Images ?? []).map(({ Id, Size, SharedSize }) => [Id, Size - Math.max(0, SharedSize)]),
    ),
    containers: { count: containers.length, sizeBytes: sum(containers.map(({ SizeRw = 0 }) => SizeRw)) },
    bytesOfVolume: new Map(
      (usage.Volumes ?? []).map(({ Name, UsageData }) => [Name, Math.max(0, UsageData?.Size ?? 0)]),
    ),
    buildCache: usage.BuildCache ?? [],
  };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
