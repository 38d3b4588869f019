/** Build settings besides the Dockerfile and context: those of the package, and those that svc adds. */
import { createHash } from "node:crypto";
import { proofLabel } from "../../engine/attribution.ts";

export interface BuildSettings {
  /** Runs each step again. */
  readonly noCache?: boolean;
  /** Such as `linux/arm64`; default: the engine's. */
  readonly platform?: string;
  /** Network of the steps: `host` or `none`; default: the engine's. */
  readonly network?: string;
  /** Size of `/dev/shm` in the steps. */
  readonly shmBytes?: number;
  /** Such as `db=10.0.0.2`. */
  readonly extraHosts?: readonly string[];
  /** Such as `nofile=100:200`. */
  readonly ulimits?: readonly string[];
  /** Directories, relative to the app's, by the name that the Dockerfile uses. */
  readonly contexts?: Readonly<Record<string, string>>;
  /** Images, and URLs of repositories and archives, by the name that the Dockerfile uses. */
  readonly remoteContexts?: Readonly<Record<string, string>>;
  /** Values by ID. */
  readonly secrets?: ReadonlyMap<string, BuildSecret>;
}

/** A file of the app, relative to its directory, or a value. */
export type BuildSecret = { readonly file: string } | { readonly value: string };

/** Names of the additional contexts. */
export function contextNames({ contexts = {}, remoteContexts = {} }: BuildSettings): string[] {
  return [...Object.keys(contexts), ...Object.keys(remoteContexts)];
}

/** The predefined arguments of a build for the engine's own platform. @param platform such as `linux/amd64` */
export function platformArguments(platform: string): Record<string, string> {
  const [os = "", architecture = "", variant = ""] = platform.split("/");
  const parts = { PLATFORM: platform, OS: os, ARCH: architecture, VARIANT: variant };
  return Object.fromEntries(
    Object.entries(parts).flatMap(([part, value]) => [
      [`TARGET${part}`, value],
      [`BUILD${part}`, value],
    ]),
  );
}

/**
 * Name of the build cache of one of root's apps, which no other package can guess. The engine ignores proxies, secrets
 * and the addresses of hosts when it compares steps, so a package could get the results of another package's steps, or
 * plant results for them. Each step therefore gets the name: with BuildKit as a host, because BuildKit compares the names
 * of hosts; otherwise as a label of its image.
 */
export function cacheName(labels: Readonly<Record<string, string>>): string {
  return createHash("sha256")
    .update(`build cache ${labels[proofLabel] ?? ""}`)
    .digest("hex")
    .slice(0, 32);
}

/** The label that separates the caches of engines without BuildKit. */
export const cacheLabel = "svc.cache";
