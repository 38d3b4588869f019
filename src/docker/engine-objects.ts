/** Images, volumes and networks as svc shows them. */
import type { ImageInfo, NetworkInspectInfo, VolumeInspectInfo } from "dockerode";
import type { Labels } from "./attribution.ts";

export interface ImageRecord {
  readonly id: string;
  /** Such as `svc/web:1`; none: nothing names it. */
  readonly tags: readonly string[];
  /** Such as `registry/svc/web@sha256:…`: what registries call it. */
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly createdAtMs: number;
  readonly labels: Labels;
}

export interface VolumeRecord {
  readonly name: string;
  readonly driver: string;
  /** Absent: the engine does not say. */
  readonly createdAtMs?: number;
  /** Made without a name. */
  readonly isAnonymous: boolean;
  /** On the host. */
  readonly mountpoint: string;
  readonly labels: Labels;
}

export interface NetworkRecord {
  readonly id: string;
  readonly name: string;
  readonly driver: string;
  readonly scope: string;
  readonly subnets: readonly string[];
  /** True: nothing outside can be reached from it. */
  readonly isInternal: boolean;
  readonly labels: Labels;
}

const anonymousLabel = "com.docker.volume.anonymous";

/** What the engine may say, whatever its client's types promise. */
type Nullable<T, K extends keyof T> = Omit<T, K> & { readonly [P in K]?: T[P] | null };

export function imageRecord(info: Nullable<ImageInfo, "Labels" | "RepoTags" | "RepoDigests">): ImageRecord {
  const named = (names: string[] | null | undefined): string[] =>
    (names ?? []).filter((name) => !name.startsWith("<none>") && !name.endsWith(":<none>")).sort();
  return {
    id: info.Id,
    tags: named(info.RepoTags),
    digests: named(info.RepoDigests),
    sizeBytes: info.Size,
    createdAtMs: info.Created * 1_000,
    labels: info.Labels ?? {},
  };
}

export function volumeRecord(info: VolumeInspectInfo & { CreatedAt?: string }): VolumeRecord {
  const labels = (info.Labels as Labels | null) ?? {};
  const createdAtMs = Date.parse(info.CreatedAt ?? "");
  return {
    name: info.Name,
    driver: info.Driver,
    ...(Number.isFinite(createdAtMs) && { createdAtMs }),
    // Engines before 23 leave the label out; their anonymous names are 64 hexadecimal digits, which nobody types.
    isAnonymous: anonymousLabel in labels || /^[0-9a-f]{64}$/.test(info.Name),
    mountpoint: info.Mountpoint,
    labels,
  };
}

export function networkRecord(info: NetworkInspectInfo): NetworkRecord {
  const ranges = (info.IPAM?.Config as { Subnet?: string }[] | null | undefined) ?? [];
  const subnets = ranges.flatMap(({ Subnet }) => (Subnet === undefined ? [] : [Subnet]));
  return {
    id: info.Id,
    name: info.Name,
    driver: info.Driver,
    scope: info.Scope,
    subnets,
    isInternal: info.Internal,
    labels: (info.Labels as Labels | null | undefined) ?? {},
  };
}
