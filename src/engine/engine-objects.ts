/** Converts the engine's images, volumes and networks to records. */
import type { ImageInfo, NetworkInspectInfo, VolumeInspectInfo } from "dockerode";
import type { Labels } from "./attribution.ts";

export interface ImageRecord {
  readonly id: string;
  /** Such as `svc/web:1`; empty for an image without a name. */
  readonly tags: readonly string[];
  /** Digests in registries, such as `registry/svc/web@sha256:…`. */
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly createdAtMs: number;
  readonly labels: Labels;
}

export interface VolumeRecord {
  readonly name: string;
  readonly driver: string;
  /** Absent if the engine does not report it. */
  readonly createdAtMs?: number;
  /** Created without a name. */
  readonly isAnonymous: boolean;
  /** Path on the host. */
  readonly mountpoint: string;
  readonly labels: Labels;
}

export interface NetworkRecord {
  readonly id: string;
  readonly name: string;
  readonly driver: string;
  readonly scope: string;
  readonly subnets: readonly string[];
  /** Whether the network has no access to the outside. */
  readonly isInternal: boolean;
  readonly labels: Labels;
}

const anonymousLabel = "com.docker.volume.anonymous";

/** Fields that the engine may send as null, unlike its client's types. */
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

/** Whether an engine chose this name of a volume. */
export function isAnonymousName(name: string): boolean {
  return /^[0-9a-f]{64}$/.test(name);
}

export function volumeRecord(info: VolumeInspectInfo & { CreatedAt?: string }): VolumeRecord {
  const labels = (info.Labels as Labels | null) ?? {};
  const createdAtMs = Date.parse(info.CreatedAt ?? "");
  return {
    name: info.Name,
    driver: info.Driver,
    ...(Number.isFinite(createdAtMs) && { createdAtMs }),
    // Engines before 23 do not set the label.
    isAnonymous: anonymousLabel in labels || isAnonymousName(info.Name),
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

export function descriptionBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value).replaceAll(/[<>&\u2028\u2029]|\\[bf]/g, "\\u0000"));
}
