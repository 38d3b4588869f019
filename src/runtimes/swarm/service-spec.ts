/** Converts the container configuration of an app to a swarm service. */
import type { HostConfig } from "dockerode";
import type { Labels } from "../../engine/attribution.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { ContainerConfig } from "../docker/container-config.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import { mountPoints, usedPlaceholders } from "../docker/container-scope.ts";
import type { Placement, RunnableApp } from "../runnable-app.ts";
import { publishedPorts, type PublishOptions } from "../containers/published-ports.ts";
import type { TaskFiles } from "./task-files.ts";
import {
  placementOf,
  plain,
  requireFewTasks,
  requireNoData,
  requireOpen,
  restartDelay,
  scaledLabel,
  updateConfigs,
} from "./stack-plan.ts";
import type { ServiceSpec } from "./swarm-api.ts";

export interface ServiceSpecOptions {
  readonly ownership: EngineOwnership;
  /** Name of the service. */
  readonly name: string;
  /** Reference for the nodes: with a digest, or the ID of an image that only this host has. */
  readonly image: string;
  /** ID of this host's node. */
  readonly nodeId: string;
  readonly taskFiles: TaskFiles;
  /** Reserved labels of the image, blanked. */
  readonly blanked: Labels;
}

const nanosecondsPerMs = 1_000_000;

/** Mounts from the app's own directory. */
export function sharedMounts(
  app: RunnableApp,
  { options }: ContainerConfig,
): NonNullable<HostConfig["Mounts"]> {
  const named = usedPlaceholders(app, dockerRuntime(app));
  // Files are passed as configs and secrets, so the directory is needed only for other contents.
  return (options.HostConfig.Mounts ?? []).filter(
    ({ Target }) => Target !== mountPoints.data || named.has("data"),
  );
}

/**
 * @throws SvcError `not_possible` for settings that a swarm does not support; `denied` for what the owner may have
 *   only on this host
 */
export function requirePlaceable(app: RunnableApp, config: ContainerConfig, publish: PublishOptions): void {
  requireFewTasks(app, placementOf(app).replicas);
  const { HostConfig: host } = config.options;
  const runtime = dockerRuntime(app);
  const cannot = [
    ...(host.Privileged === true ? ["runs privileged"] : []),
    ...(runtime.network === "bridge" ? [] : [`uses the network "${runtime.network}"`]),
    ...(host.PidMode === "host" ? ["sees the processes of its host"] : []),
    ...(host.IpcMode === "host" ? ["shares the IPC of its host"] : []),
    ...(runtime.devices.length > 0 ? ["uses devices of its host"] : []),
  ];
  if (cannot.length > 0) {
    throw new SvcError(
      "not_possible",
      `app "${app.id}" ${cannot.join(", ")}, which swarms do not support for containers`,
    );
  }
  requireNoData(app, sharedMounts(app, config).length > 0);
  requireOpen(app, publishedPorts(app, publish));
}

export function serviceSpec(
  app: RunnableApp,
  config: ContainerConfig,
  options: ServiceSpecOptions,
): ServiceSpec {
  const { ownership, name, image, nodeId } = options;
  const { replicas, ports } = placementOf(app);
  const mounts = sharedMounts(app, config);
  // Data, or an image that only this host has, requires placement on this host.
  const isHere = mounts.length > 0 || !image.includes("@");
  const { restart } = app.manifest;
  const published = portsOf(config, ports);
  return plain({
    Name: name,
    Labels: { ...ownership.labels("service", app.id), [scaledLabel]: "true" },
    TaskTemplate: {
      ContainerSpec: containerSpec(app, config, options),
      Resources: { Limits: limitsOf(config.options.HostConfig) },
      RestartPolicy: {
        Condition: { never: "none", "on-failure": "on-failure", always: "any" }[restart.policy],
        Delay: restartDelay(app),
        MaxAttempts: restart.maxAttempts,
        Window: restart.resetAfterMs * nanosecondsPerMs,
      },
      Placement: isHere ? { Constraints: [`node.id==${nodeId}`] } : {},
      LogDriver: config.options.HostConfig.LogConfig && {
        Name: config.options.HostConfig.LogConfig.Type,
        Options: config.options.HostConfig.LogConfig.Config as object,
      },
      Networks: [{ Target: config.network }],
    },
    Mode: { Replicated: { Replicas: replicas } },
    ...updateConfigs(app, { ports, hasPorts: published.length > 0, hasMounts: mounts.length > 0 }),
    EndpointSpec: { Mode: ports === "mesh" ? "vip" : "dnsrr", Ports: published },
  }) as ServiceSpec;
}

function containerSpec(
  app: RunnableApp,
  config: ContainerConfig,
  { ownership, image, taskFiles, blanked }: ServiceSpecOptions,
): JsonObject {
  const { options } = config;
  const host = options.HostConfig;
  const env = (options.Env ?? []).filter((pair) => !taskFiles.withheld.has(pair.slice(0, pair.indexOf("="))));
  const fromFiles = Object.entries(taskFiles.env).map(([key, value]) => `${key}=${value}`);
  return plain({
    Image: image,
    Labels: { ...blanked, ...ownership.labels("container", app.id) },
    Command: options.Entrypoint === undefined ? undefined : [options.Entrypoint].flat(),
    Args: options.Cmd,
    Env: [...env, ...fromFiles],
    Dir: options.WorkingDir,
    User: options.User,
    Groups: host.GroupAdd,
    TTY: options.Tty,
    OpenStdin: options.OpenStdin,
    Init: true,
    StopSignal: options.StopSignal,
    StopGracePeriod: app.manifest.stop.graceMs * nanosecondsPerMs,
    Healthcheck: options.Healthcheck,
    Mounts: sharedMounts(app, config),
    // Engines with an API before 1.44 ignore it, but a user's program has no capabilities to gain.
    Privileges: { NoNewPrivileges: true },
    ...(app.ownerUid === 0 ? { CapabilityAdd: host.CapAdd as unknown } : { CapabilityDrop: ["ALL"] }),
    Ulimits: host.Ulimits,
  }) as JsonObject;
}

function limitsOf({ Memory, NanoCpus, PidsLimit }: HostConfig): object {
  return { MemoryBytes: Memory, NanoCPUs: NanoCpus, Pids: PidsLimit };
}

function portsOf({ options }: ContainerConfig, mode: Placement["ports"]): object[] {
  const bindings = (options.HostConfig.PortBindings ?? {}) as Record<string, { HostPort: string }[]>;
  return Object.entries(bindings).flatMap(([inside, ports]) => {
    const [port, protocol] = inside.split("/");
    return ports.map(({ HostPort }) => ({
      Protocol: protocol,
      TargetPort: Number(port),
      PublishedPort: Number(HostPort),
      PublishMode: mode === "mesh" ? "ingress" : "host",
    }));
  });
}
