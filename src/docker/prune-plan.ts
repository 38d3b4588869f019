/** What a prune removes and what it passes over, and why: decided before anything is removed (specification 4.3). */
import type { PruneDockerRequestTarget } from "../../gen/svc/v1/words.ts";
import type { BuildCacheRecord, DiskUsage } from "./disk-usage.ts";
import type { Protection } from "./protection.ts";

export interface PruneItem {
  readonly id: string;
  /** Empty when it has none. */
  readonly name: string;
  readonly sizeBytes: number;
  /** What to remove it by, one after another: an image goes with its last name. */
  readonly handles: readonly string[];
}

export interface SkippedItem {
  readonly id: string;
  readonly name: string;
  readonly reason: string;
}

/** In the order in which it is carried out. */
export interface PrunePlan {
  readonly remove: readonly PruneItem[];
  readonly skip: readonly SkippedItem[];
}

/** @param danglingOnly images without a name, volumes without a name, build cache that nothing shares */
export function planPrune(
  target: PruneDockerRequestTarget,
  danglingOnly: boolean,
  disk: DiskUsage,
  protection: Protection,
): PrunePlan {
  switch (target) {
    case "images":
      return planImages(danglingOnly, disk, protection);
    case "volumes":
      return planVolumes(danglingOnly, disk, protection);
    case "build_cache":
      return planBuildCache(danglingOnly, disk);
  }
}

function planImages(danglingOnly: boolean, disk: DiskUsage, protection: Protection): PrunePlan {
  const { images, containers } = disk;
  const used = new Set(containers.map(({ imageId }) => imageId));
  const unused = images.filter(({ id, tags }) => !used.has(id) && (!danglingOnly || tags.length === 0));
  return split(
    unused.map(({ id, tags, digests, ownBytes }) => {
      const names = [...tags, ...digestsOf(tags, digests)];
      // By its id, an image with several names is not removed; it goes with the last of them.
      return { id, name: tags[0] ?? "", sizeBytes: ownBytes, handles: names.length > 0 ? names : [id] };
    }),
    new Map(images.map((image) => [image.id, protection.ofImage(image)])),
  );
}

/** Digests of repositories that no tag names: those that a tag names go with it. */
function digestsOf(tags: readonly string[], digests: readonly string[]): string[] {
  const repositories = new Set(tags.map((tag) => tag.slice(0, tag.lastIndexOf(":"))));
  return digests.filter((digest) => !repositories.has(digest.slice(0, digest.indexOf("@"))));
}

function planVolumes(danglingOnly: boolean, disk: DiskUsage, protection: Protection): PrunePlan {
  const { volumes, containers } = disk;
  const used = new Set(containers.flatMap(({ volumes: names }) => names));
  const unused = volumes.filter(({ name, isAnonymous }) => !used.has(name) && (!danglingOnly || isAnonymous));
  return split(
    unused.map(({ name, sizeBytes }) => ({
      id: name,
      name,
      sizeBytes,
      handles: [name],
    })),
    new Map(volumes.map((volume) => [volume.name, protection.ofVolume(volume)])),
  );
}

/** Children first: the builder gives no record up that another is made upon. */
function planBuildCache(danglingOnly: boolean, { buildCache }: DiskUsage): PrunePlan {
  const left = new Map(buildCache.map((record) => [record.ID, record]));
  const isUnused = ({ InUse, Shared }: BuildCacheRecord): boolean => !InUse && !(danglingOnly && Shared);
  const remove: PruneItem[] = [];
  for (;;) {
    const parents = new Set([...left.values()].flatMap(parentsOf));
    const next = [...left.values()].filter((record) => isUnused(record) && !parents.has(record.ID));
    if (next.length === 0) break;
    for (const record of next) {
      left.delete(record.ID);
      remove.push(cacheItem(record));
    }
  }
  const skip = [...left.values()].filter(isUnused).map(({ ID, Description = "" }) => ({
    id: ID,
    name: Description,
    reason: "other build cache is made upon it",
  }));
  return { remove, skip };
}

function parentsOf({ Parent = "", Parents }: BuildCacheRecord): readonly string[] {
  return Parents ?? (Parent === "" ? [] : Parent.split(" "));
}

function cacheItem({ ID, Description = "", Size }: BuildCacheRecord): PruneItem {
  return { id: ID, name: Description, sizeBytes: Size, handles: [ID] };
}

function split(items: readonly PruneItem[], reasons: ReadonlyMap<string, string>): PrunePlan {
  const reasonOf = ({ id }: PruneItem): string => reasons.get(id) ?? "";
  return {
    remove: items.filter((item) => reasonOf(item) === ""),
    skip: items
      .filter((item) => reasonOf(item) !== "")
      .map((item) => ({ id: item.id, name: item.name, reason: reasonOf(item) })),
  };
}
