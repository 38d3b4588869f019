/** Decides what a prune removes and what it skips, with reasons, before anything is removed. */
import type { PruneDockerRequestTarget } from "../../gen/svc/v1/values.ts";
import type { BuildCacheRecord, DiskUsage } from "./disk-usage.ts";
import type { Protection } from "./protection.ts";

export interface PruneItem {
  readonly id: string;
  /** Empty for an object without a name. */
  readonly name: string;
  readonly sizeBytes: number;
  /** The names to remove one after another: an image is deleted with its last name. */
  readonly handles: readonly string[];
}

export interface SkippedItem {
  readonly id: string;
  readonly name: string;
  readonly reason: string;
}

/** In the order of removal. */
export interface PrunePlan {
  readonly remove: readonly PruneItem[];
  readonly skip: readonly SkippedItem[];
}

/** @param danglingOnly only images and volumes without a name, and build cache that is not shared */
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
      // The engine does not remove an image with several names by its ID; it removes the image with its last name.
      return { id, name: tags[0] ?? "", sizeBytes: ownBytes, handles: names.length > 0 ? names : [id] };
    }),
    new Map(images.map((image) => [image.id, protection.ofImage(image)])),
  );
}

/** Repository digests without a tag; the others are removed with their tag. */
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

/** Children first, because the builder keeps a record that another one builds on. */
function planBuildCache(danglingOnly: boolean, { buildCache }: DiskUsage): PrunePlan {
  const remaining = new Map(buildCache.map((record) => [record.ID, record]));
  const isUnused = ({ InUse, Shared }: BuildCacheRecord): boolean => !InUse && !(danglingOnly && Shared);
  const remove: PruneItem[] = [];
  for (;;) {
    const parents = new Set([...remaining.values()].flatMap(parentsOf));
    const next = [...remaining.values()].filter((record) => isUnused(record) && !parents.has(record.ID));
    if (next.length === 0) break;
    for (const record of next) {
      remaining.delete(record.ID);
      remove.push(cacheItem(record));
    }
  }
  const skip = [...remaining.values()].filter(isUnused).map(({ ID, Description = "" }) => ({
    id: ID,
    name: Description,
    reason: "other build cache depends on it",
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
