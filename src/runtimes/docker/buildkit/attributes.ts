/** Options of BuildKit's frontend for Dockerfiles (frontend/dockerui of github.com/moby/buildkit). */
import { mapValues } from "../../../lib/map-values.ts";
import { cacheName, type BuildSettings } from "../build-settings.ts";
import type { PreparedBuild } from "../build-request.ts";

export function attributesOf({
  args,
  labels,
  target,
  settings = {},
}: Pick<PreparedBuild, "args" | "labels" | "target" | "settings">): Record<string, string> {
  const { noCache, platform, network, shmBytes, extraHosts = [], ulimits = [] } = settings;
  const { contexts = {}, remoteContexts = {} } = settings;
  const cache = cacheName(labels);
  const hosts = [...extraHosts, `${cache}.invalid=127.0.0.1`];
  return {
    ...prefixed("build-arg:", args),
    "build-arg:BUILDKIT_CACHE_MOUNT_NS": cache,
    ...prefixed("label:", labels),
    ...(target !== undefined && { target }),
    // An empty list of stages stands for all.
    ...(noCache === true && { "no-cache": "" }),
    ...(platform !== undefined && { platform }),
    ...(network !== undefined && { "force-network-mode": network }),
    ...(shmBytes !== undefined && { "shm-size": String(shmBytes) }),
    "add-hosts": hosts.join(","),
    ...(ulimits.length > 0 && { ulimit: ulimits.join(",") }),
    ...prefixed(
      "context:",
      mapValues(contexts, (_, name) => `local:${name}`),
    ),
    ...prefixed("context:", remoteContexts),
  };
}

export function entitlementsOf({ network }: BuildSettings): string[] {
  return network === "host" ? ["network.host"] : [];
}

function prefixed(prefix: string, values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}${name}`, value]));
}
