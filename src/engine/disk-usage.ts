/** The engine's disk usage. The engine measures it on request, which is expensive. */
import { setTimeout as wait } from "node:timers/promises";
import type { ContainerInfo, ImageInfo, VolumeInspectInfo } from "dockerode";
import { CoalescedRequests } from "../lib/coalesced-requests.ts";
import type { Labels } from "./attribution.ts";
import { EngineRejection } from "./engine-errors.ts";
import { imageRecord, volumeRecord, type ImageRecord, type VolumeRecord } from "./engine-objects.ts";
import type { EngineOperations } from "./watched-engine.ts";

const timeoutMs = 120_000;
const busyRetryMs = 250;

/** The parts of the response to `GET /system/df` that svc uses; empty lists may be null. */
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
  /** ID of the record that this one builds on; that record cannot be removed before this one. */
  Parent?: string;
  /** Newer engines list several. */
  Parents?: string[] | null;
  Description?: string;
  InUse: boolean;
  Shared: boolean;
  Size: number;
}

/** A container that keeps images and volumes in use. */
export interface ContainerUse {
  readonly imageId: string;
  readonly names: readonly string[];
  readonly labels: Labels;
  /** Volume names. */
  readonly volumes: readonly string[];
}

/** Everything on the engine at one moment, with its size, sorted by ID or name. */
export interface DiskUsage {
  /** All layers, shared ones counted once. */
  readonly layersBytes: number;
  readonly images: readonly (ImageRecord & {
    /** Space that removing only this image would free. */
    readonly ownBytes: number;
  })[];
  /** Includes stopped containers. */
  readonly containers: readonly ContainerUse[];
  /** All writable layers. */
  readonly containersBytes: number;
  readonly volumes: readonly (VolumeRecord & {
    /** 0 if the engine does not know. */
    readonly sizeBytes: number;
  })[];
  readonly buildCache: readonly BuildCacheRecord[];
}

/** The engine rejects concurrent measurements, so each engine has one meter. */
export class DiskMeter {
  readonly #measurements: CoalescedRequests<undefined, DiskUsage>;

  constructor(engine: EngineOperations) {
    this.#measurements = new CoalescedRequests(() => measureDisk(engine));
  }

  /**
   * Measures after this call; callers that arrive during a measurement share the next one.
   * @throws SvcError `unavailable`; the signal's reason
   */
  measure(signal = AbortSignal.timeout(timeoutMs)): Promise<DiskUsage> {
    return this.#measurements.request(undefined, signal);
  }
}

/** Waits while another client measures. @throws SvcError `unavailable` */
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
    containers: containers.map(({ ImageID, Names: names, Labels: labels, Mounts }) => ({
      imageId: ImageID,
      names: (names as string[] | null) ?? [],
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

/**
 * Whether another client measures at this moment: the engine responds with a 500, as for many errors, so only the
 * text identifies it.
 */
function isBusy(error: unknown): boolean {
  return error instanceof EngineRejection && /already running/.test(error.message);
}
