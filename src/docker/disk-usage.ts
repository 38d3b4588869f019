/** What the engine keeps on the disk, as it measures it itself: expensive, so only on demand. */
import { setTimeout as wait } from "node:timers/promises";
import type { ContainerInfo, ImageInfo, VolumeInspectInfo } from "dockerode";
import { SharedRounds } from "../lib/shared-rounds.ts";
import type { Labels } from "./attribution.ts";
import { EngineRefusal } from "./engine-errors.ts";
import { imageRecord, volumeRecord, type ImageRecord, type VolumeRecord } from "./engine-objects.ts";
import type { EngineOperations } from "./watched-engine.ts";

const timeoutMs = 120_000;
const busyRetryMs = 250;

/** What is used of the engine's answer to `GET /system/df`; lists that are empty may be null. */
interface EngineDiskUsage {
  LayersSize?: number;
  Images?: (ImageInfo & { SharedSize: number })[] | null;
  Containers?: (ContainerInfo & { SizeRw?: number })[] | null;
  Volumes?: (VolumeInspectInfo & { UsageData?: { Size: number } | null })[] | null;
  BuildCache?: BuildCacheRecord[] | null;
}

/** A record of the build cache. */
export interface BuildCacheRecord {
  ID: string;
  /** Id of the record that this one is made upon: it cannot go before this one. */
  Parent?: string;
  /** Newer engines tell several. */
  Parents?: string[] | null;
  Description?: string;
  InUse: boolean;
  Shared: boolean;
  Size: number;
}

/** A container, as far as it keeps images and volumes in use. */
export interface ContainerUse {
  readonly imageId: string;
  readonly labels: Labels;
  /** Names of volumes. */
  readonly volumes: readonly string[];
}

/** Everything on the engine at one moment, with what it takes; in the order of ids and names, as the engine has none. */
export interface DiskUsage {
  /** All layers together, those that several images share once. */
  readonly layersBytes: number;
  readonly images: readonly (ImageRecord & {
    /** What removing it alone would free. */
    readonly ownBytes: number;
  })[];
  /** Stopped ones too. */
  readonly containers: readonly ContainerUse[];
  /** Their writable layers together. */
  readonly containersBytes: number;
  readonly volumes: readonly (VolumeRecord & {
    /** 0 where the engine cannot tell. */
    readonly sizeBytes: number;
  })[];
  readonly buildCache: readonly BuildCacheRecord[];
}

/** The engine measures for one at a time, and refuses all others meanwhile: one meter for each engine. */
export class DiskMeter {
  readonly #rounds: SharedRounds<undefined, DiskUsage>;

  constructor(engine: EngineOperations) {
    this.#rounds = new SharedRounds(() => measureDisk(engine));
  }

  /**
   * What is so after this call: whoever comes while one is measured shares the next one.
   * @throws SvcError `unavailable`; the signal's reason
   */
  measure(signal = AbortSignal.timeout(timeoutMs)): Promise<DiskUsage> {
    return this.#rounds.join(undefined, signal);
  }
}

/** Waits while somebody else measures. @throws SvcError `unavailable` */
async function measureDisk(engine: EngineOperations): Promise<DiskUsage> {
  const usage = await engine.operate(
    "measure its disk usage",
    async (docker, ended) => {
      for (;;) {
        try {
          return (await docker.df()) as EngineDiskUsage;
        } catch (error) {
          if (!isBusy(error)) throw error;
          await wait(busyRetryMs, undefined, { signal: ended });
        }
      }
    },
    { timeoutMs },
  );
  const containers = usage.Containers ?? [];
  return {
    layersBytes: usage.LayersSize ?? 0,
    images: (usage.Images ?? [])
      .map((info) => ({ ...imageRecord(info), ownBytes: info.Size - Math.max(0, info.SharedSize) }))
      .sort((a, b) => (a.id < b.id ? -1 : 1)),
    containers: containers.map(({ ImageID, Labels: labels, Mounts }) => ({
      imageId: ImageID,
      labels: (labels as Labels | null) ?? {},
      volumes: ((Mounts as { Name?: string }[] | null) ?? []).flatMap(({ Name = "" }) => Name || []),
    })),
    containersBytes: containers.reduce((sum, { SizeRw = 0 }) => sum + SizeRw, 0),
    volumes: (usage.Volumes ?? [])
      .map((info) => ({ ...volumeRecord(info), sizeBytes: Math.max(0, info.UsageData?.Size ?? 0) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1)),
    buildCache: (usage.BuildCache ?? []).sort((a, b) => (a.ID < b.ID ? -1 : 1)),
  };
}

/** Somebody else has it measured just now: the engine says so with a 500, as to much else, and in these words alone. */
function isBusy(error: unknown): boolean {
  return error instanceof EngineRefusal && /already running/.test(error.message);
}
