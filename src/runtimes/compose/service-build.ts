/** Reads `build` of a service in the output of `compose config`. */
import { posix } from "node:path";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { isInside } from "../../lib/paths.ts";
import type { ContainerClaims } from "../containers/container-policy.ts";
import type { BuildSecret, BuildSettings } from "../docker/build-settings.ts";
import { invalid } from "./compose-sources.ts";
import {
  bytesOf,
  environmentPairs,
  isSet,
  listOf,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
  unknownKeys,
} from "./compose-values.ts";

/** An image to build. */
export interface ServiceBuild {
  readonly service: string;
  /** Absolute path. */
  readonly context: string;
  /** Path relative to the context. */
  readonly dockerfile: string;
  /** The Dockerfile's text instead of a file. */
  readonly inline?: string;
  readonly target?: string;
  readonly args: Readonly<Record<string, string>>;
  /** Paths are absolute. */
  readonly settings: BuildSettings;
  /** Messages about ignored keys, which do not change the image. */
  readonly notes: readonly string[];
  /** Whether each start builds it again. */
  readonly isRepeated: boolean;
}

export interface BuildSources {
  /** The compose file, for errors. */
  readonly file: string;
  /** The project's secrets. */
  readonly secrets: JsonObject;
  /** Name of a service's built image. */
  readonly builtTag: (service: string) => string;
}

/** Keys that change neither the image nor where the build runs. */
const withoutEffect = ["cache_from", "cache_to", "labels", "pull", "provenance", "sbom", "isolation"];
const supportedKeys = [
  ...["context", "dockerfile", "dockerfile_inline", "args", "target", "no_cache", "platforms", "network"],
  ...["shm_size", "extra_hosts", "ulimits", "additional_contexts", "secrets", "tags"],
];

const remedies: Readonly<Record<string, string>> = {
  ssh: "svc has no ssh agent; pass a key as a secret, or clone before the build",
  privileged: "the engine's builder cannot run privileged steps; leave it out",
  entitlements: "the engine's builder does not grant them; leave them out",
};

export function readBuild(
  service: string,
  value: JsonValue,
  sources: BuildSources,
): Omit<ServiceBuild, "isRepeated"> {
  const { file } = sources;
  const build = typeof value === "string" ? { context: value } : recordOf(value);
  const [unsupported] = unknownKeys(build, [...supportedKeys, ...withoutEffect]);
  if (unsupported !== undefined) {
    const remedy = remedies[unsupported] ?? "leave it out, or set an image";
    throw invalid(file, `service "${service}": svc does not support "${unsupported}" in build: ${remedy}`);
  }
  const path = textOf(build["context"]);
  if (!path.startsWith("/"))
    throw invalid(file, `service "${service}": the build context must be a directory`);
  const { dockerfile_inline: inline, target } = build;
  const dockerfile = posix.resolve(path, textOf(build["dockerfile"]) || "Dockerfile");
  return {
    service,
    context: path,
    dockerfile: posix.relative(path, dockerfile),
    ...(isSet(inline) && { inline: textOf(inline) }),
    ...(isSet(target) && { target: textOf(target) }),
    // Arguments without a value keep the Dockerfile's default.
    args: environmentPairs(build["args"]),
    settings: readSettings(service, build, sources),
    notes: isSet(build["tags"]) ? [`service "${service}": svc names the image itself, without "tags"`] : [],
  };
}

const hostPlatform = `linux/${process.arch === "x64" ? "amd64" : process.arch}`;

function readSettings(service: string, build: JsonObject, sources: BuildSources): BuildSettings {
  const { no_cache: noCache, network, shm_size: shmSize, platforms } = build;
  const requested = textsOf(platforms);
  // If several are listed, the engine builds for its default.
  const platform = requested.length === 1 ? requested[0] : undefined;
  if (requested.length > 1 && !requested.includes(hostPlatform))
    throw invalid(
      sources.file,
      `service "${service}": svc builds for one platform; add ${hostPlatform} to "platforms", or keep only one`,
    );
  const isDefault = ["", "default", "bridge"].includes(textOf(network));
  if (!isDefault && !["host", "none"].includes(textOf(network)))
    throw invalid(
      sources.file,
      `service "${service}": a build cannot use the network "${textOf(network)}"; use "host" or "none", or leave it out`,
    );
  const extraHosts = hostsOf(build["extra_hosts"] ?? null);
  const ulimits = limitsOf(build["ulimits"] ?? null);
  const secrets = secretsOf(service, build, sources);
  return {
    ...(isSet(noCache) && { noCache: true }),
    ...(platform !== undefined && { platform }),
    ...(!isDefault && { network: textOf(network) }),
    ...(isSet(shmSize) && { shmBytes: bytesOf(shmSize) }),
    ...(extraHosts.length > 0 && { extraHosts }),
    ...(ulimits.length > 0 && { ulimits }),
    ...(secrets.size > 0 && { secrets }),
    ...contextsOf(build, sources),
  };
}

/** Reads `["a=1"]`, `["a:1"]`, `{a: 1}` and `{a: [1, 2]}`. */
function hostsOf(value: JsonValue): string[] {
  if (Array.isArray(value)) return value.map((host) => textOf(host).replace(/^([^:=]+)[:=]/, "$1="));
  return Object.entries(recordOf(value)).flatMap(([name, addresses]) =>
    textsOf(addresses).map((address) => `${name}=${address}`),
  );
}

/** Reads `{nofile: 100}` and `{nofile: {soft: 1, hard: 2}}`, in which compose v2 may write `single`. */
function limitsOf(value: JsonValue): string[] {
  return Object.entries(recordOf(value)).map(([name, limit]) => {
    const { single = limit, soft = single, hard = single } = recordOf(limit);
    return `${name}=${textOf(soft)}:${textOf(hard)}`;
  });
}

function contextsOf(build: JsonObject, { builtTag }: BuildSources): BuildSettings {
  const contexts: Record<string, string> = {};
  const remoteContexts: Record<string, string> = {};
  for (const [name, location] of Object.entries(pairsOf(build["additional_contexts"]))) {
    const service = /^service:(.*)$/.exec(location)?.[1];
    if (service !== undefined) remoteContexts[name] = `docker-image://${builtTag(service)}`;
    else if (location.startsWith("/")) contexts[name] = location;
    else remoteContexts[name] = location;
  }
  return {
    ...(Object.keys(contexts).length > 0 && { contexts }),
    ...(Object.keys(remoteContexts).length > 0 && { remoteContexts }),
  };
}

function secretsOf(
  service: string,
  build: JsonObject,
  { file, secrets }: BuildSources,
): Map<string, BuildSecret> {
  const found = new Map<string, BuildSecret>();
  for (const item of listOf(build["secrets"])) {
    const reference = typeof item === "string" ? { source: item } : recordOf(item);
    const source = textOf(reference["source"]);
    const secret = recordOf(secrets[source]);
    const id = posix.basename(textOf(reference["target"]) || source);
    if (isSet(secret["file"])) found.set(id, { file: textOf(secret["file"]) });
    else if (typeof secret["content"] === "string") found.set(id, { value: secret["content"] });
    else
      throw invalid(file, `service "${service}": the build's secret "${source}" has no file and no variable`);
  }
  return found;
}

/**
 * @param directory of the package
 * @throws SvcError `package_invalid` for a path outside of the package
 */
export function requireInPackage(
  file: string,
  { service, context, dockerfile, inline, settings }: ServiceBuild,
  directory: string,
): void {
  const { contexts = {}, secrets = new Map<string, BuildSecret>() } = settings;
  const paths: [what: string, path: string][] = [
    ["the build context", context],
    ...(inline === undefined
      ? [["the Dockerfile", posix.resolve(context, dockerfile)] as [string, string]]
      : []),
    ...Object.entries(contexts).map(([name, path]): [string, string] => [`the context "${name}"`, path]),
    ...[...secrets].flatMap(([id, secret]): [string, string][] =>
      "file" in secret ? [[`the secret "${id}"`, secret.file]] : [],
    ),
  ];
  const outside = paths.find(([, path]) => !isInside(directory, path));
  if (outside === undefined) return;
  throw invalid(file, `service "${service}": ${outside[0]} is outside the package; move it into the package`);
}

/** The host access that a build requests. */
export function buildClaims({
  service,
  settings,
}: {
  readonly service: string;
  readonly settings: Pick<BuildSettings, "network">;
}): ContainerClaims {
  const usesHostNetwork = settings.network === "host";
  return {
    subject: `the build of service "${service}"`,
    requirements: usesHostNetwork ? [{ permission: "host_network", what: "uses the host's network" }] : [],
    binds: [],
    hostPorts: [],
  };
}

/** The build with paths relative to the app's directory. */
export function relativeTo(directory: string, build: ServiceBuild): ServiceBuild {
  const { context, settings } = build;
  const { contexts, secrets } = settings;
  const relative = (path: string): string => posix.relative(directory, path);
  return {
    ...build,
    context: relative(context),
    settings: {
      ...settings,
      ...(contexts && { contexts: mapValues(contexts, relative) }),
      ...(secrets && {
        secrets: new Map(
          [...secrets].map(([id, secret]): [string, BuildSecret] => [
            id,
            "file" in secret ? { file: relative(secret.file) } : secret,
          ]),
        ),
      }),
    },
  };
}
