/** Converts manifest and settings to the options of the app's container. */
import { createHash } from "node:crypto";
import type { ContainerCreateOptions, HostConfig } from "dockerode";
import { blankedLabels, imageLabel, type Labels } from "../../engine/attribution.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { hasOwnTerminal, type DockerRuntime, type Manifest } from "../../packages/manifest/manifest.ts";
import { mapValues } from "../../lib/map-values.ts";
import { resolveSettings } from "../../packages/settings/settings.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import { ownerSpec } from "../containers/container-policy.ts";
import { publishedPorts, type PublishOptions } from "../containers/published-ports.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { dockerRuntime } from "./app-images.ts";
import { appMounts, containerEnvironment, containerExpander } from "./container-scope.ts";

export interface ContainerConfigOptions extends PublishOptions {
  /** ID of the local image, such as `sha256:…`. */
  imageId: string;
  /** Name of the image. */
  imageReference: string;
  /** Labels of the image; `undefined` while it is unknown. */
  imageLabels?: Labels | null | undefined;
  /** Owner of the app's files. */
  owner: { uid: number; gid: number };
  ownership: EngineOwnership;
  /** Name of the app's own network. */
  network: string;
  /** Default process limit of a regular user's container. */
  usersPidsLimit: number;
  /** Limit of the processes and threads of a regular user, in all containers together. */
  maxUserProcesses: number;
  /** Optional read-only mounts that this host does not have. */
  absent: ReadonlySet<string>;
}

/** Options of a new container, and the release that identifies configuration, image and version. */
export interface ContainerConfig {
  readonly name: string;
  readonly release: string;
  /** Name of the app's own network. */
  readonly network: string;
  readonly options: ContainerCreateOptions & { readonly HostConfig: HostConfig };
}

/** Limits of the rotated log. */
const logFiles = { "max-size": "10m", "max-file": "5" };
const releaseLength = 16;
const nanosecondsPerMs = 1_000_000;
const nanoCpus = 1_000_000_000;

/** @throws Error for an app that does not run as one container */
export function containerConfig(app: RunnableApp, options: ContainerConfigOptions): ContainerConfig {
  const plain = createOptions(app, dockerRuntime(app), options);
  const release = createHash("sha256")
    .update(JSON.stringify([settingsDigest(app), plain]))
    .digest("hex")
    .slice(0, releaseLength);
  const labels = {
    ...blankedLabels(options.imageLabels),
    ...options.ownership.labels("container", app.id),
    [releaseLabel]: release,
    [settingsLabel]: settingsDigest(app),
    [imageLabel]: options.imageReference,
  };
  const name = `svc-${app.id}-${release}`;
  return { name, release, network: options.network, options: { ...plain, name, Labels: labels } };
}

function createOptions(
  app: RunnableApp,
  runtime: DockerRuntime,
  options: ContainerConfigOptions,
): ContainerConfig["options"] {
  const { imageId, owner } = options;
  const bindings = portBindings(app, options);
  const { manifest } = app;
  const expand = containerExpander(app);
  const { args } = resolveSettings(manifest, app.settings);
  const command = [...(runtime.command ?? []).map(expand), ...args];
  const env = Object.entries(containerEnvironment(app, runtime)).map(([name, value]) => `${name}=${value}`);
  // Root in the container would have root's access to mounted files, so other users' apps run as their owners.
  const user = runtime.user ?? (owner.uid === 0 ? undefined : ownerSpec(owner));
  return {
    Image: imageId,
    Env: env,
    ...(command.length > 0 && { Cmd: command }),
    ...(runtime.entrypoint !== undefined && { Entrypoint: runtime.entrypoint }),
    ...(runtime.workingDir !== undefined && { WorkingDir: runtime.workingDir }),
    ...(user !== undefined && { User: user }),
    ...healthcheckOf(manifest, expand),
    ...(hasOwnTerminal(manifest) && { Tty: true, OpenStdin: true }),
    StopSignal: manifest.stop.signal,
    // For stops by the engine itself, when the host shuts down.
    StopTimeout: Math.ceil(manifest.stop.graceMs / 1000),
    ...(runtime.network === "bridge" && { ExposedPorts: mapValues(bindings, () => ({})) }),
    HostConfig: hostConfig(app, runtime, bindings, options),
  };
}

function hostConfig(
  app: RunnableApp,
  runtime: DockerRuntime,
  bindings: PortBindings,
  options: ContainerConfigOptions,
): HostConfig {
  const { limits } = app.manifest;
  const mounts = [
    ...appMounts(app, runtime),
    ...runtime.mounts
      .map(({ source, target, read_only: readOnly = false }) => ({ source, target, readOnly }))
      .filter(({ source, readOnly }) => !readOnly || !options.absent.has(source)),
  ];
  const ulimits = [
    ...(limits.openFiles === undefined ? [] : [["nofile", limits.openFiles] as const]),
    ...(app.ownerUid === 0 ? [] : [["nproc", options.maxUserProcesses] as const]),
  ];
  return {
    Init: true,
    SecurityOpt: ["no-new-privileges"],
    LogConfig: { Type: "json-file", Config: logFiles },
    // No container starts without svc's check: svc restarts it by the manifest's policy.
    RestartPolicy: { Name: "no" },
    NetworkMode: runtime.network === "bridge" ? options.network : runtime.network,
    ...(app.ownerUid !== 0 && { PidsLimit: options.usersPidsLimit }),
    // Not `Binds`: the engine would create missing sources as root.
    Mounts: mounts.map(({ source, target, readOnly }) => ({
      Type: "bind" as const,
      Source: source,
      Target: target,
      ReadOnly: readOnly,
      BindOptions: { Propagation: "rprivate" as const },
    })),
    ...(runtime.privileged && { Privileged: true }),
    ...(runtime.pid === "host" && { PidMode: "host" }),
    ...(runtime.ipc === "host" && { IpcMode: "host" }),
    ...(runtime.capabilities.length > 0 && { CapAdd: runtime.capabilities }),
    ...(runtime.devices.length > 0 && {
      Devices: runtime.devices.map((path) => ({
        ...{ PathOnHost: path, PathInContainer: path, CgroupPermissions: "rwm" },
      })),
    }),
    ...(runtime.groups !== undefined && { GroupAdd: runtime.groups.map(String) }),
    ...(limits.memoryBytes !== undefined && { Memory: limits.memoryBytes }),
    ...(limits.cpus !== undefined && { NanoCpus: Math.round(limits.cpus * nanoCpus) }),
    ...(ulimits.length > 0 && {
      Ulimits: ulimits.map(([Name, limit]) => ({ Name, Soft: limit, Hard: limit })),
    }),
    ...(runtime.network === "bridge" && { PortBindings: bindings }),
  };
}

/** Host addresses and ports of the published ports, by keys such as `8080/tcp`. */
type PortBindings = Record<string, { HostIp: string; HostPort: string }[]>;

function portBindings(app: RunnableApp, options: PublishOptions): PortBindings {
  const declared = new Map(app.manifest.ports.map((port) => [port.name, port.containerPort]));
  const bindings: PortBindings = {};
  for (const { name, protocol, port, address } of publishedPorts(app, options)) {
    const inside = `${declared.get(name) ?? port}/${protocol}`;
    (bindings[inside] ??= []).push({ HostIp: address, HostPort: String(port) });
  }
  return bindings;
}

/**
 * The engine runs command checks inside the container; svc probes http and tcp from outside, which disables the
 * image's check.
 */
function healthcheckOf(
  { health }: Manifest,
  expand: (text: string) => string,
): Pick<ContainerCreateOptions, "Healthcheck"> {
  if (health === undefined) return {};
  if (health.probe.kind !== "exec") return { Healthcheck: { Test: ["NONE"] } };
  return {
    Healthcheck: {
      Test: ["CMD", ...health.probe.argv.map(expand)],
      Interval: health.intervalMs * nanosecondsPerMs,
      Timeout: health.timeoutMs * nanosecondsPerMs,
      StartPeriod: health.startPeriodMs * nanosecondsPerMs,
      Retries: health.retries,
    },
  };
}
