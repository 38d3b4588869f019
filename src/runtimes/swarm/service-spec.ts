/** From the container that an app would be on this machine to the service that it is on a swarm. */
import type { HostConfig } from "dockerode";
import { appLabels } from "../../docker/attribution.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { ContainerConfig } from "../docker/container-config.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import { mountPoints, namedPlaces } from "../docker/container-scope.ts";
import type { Placement, RunnableApp } from "../runtime.ts";
import { publishedPorts, type PublishOptions } from "../published-ports.ts";
import type { Handed } from "./handed-files.ts";
import {
  placementOf,
  plain,
  requireFewTasks,
  requireNoData,
  requireOpen,
  scaledLabel,
  updateConfigs,
} from "./stack-plan.ts";
import type { ServiceSpec } from "./swarm-api.ts";

export interface ServiceSpecOptions {
  readonly storeId: string;
  /** Of the service. */
  readonly name: string;
  /** As the nodes find it: with its digest, or the id of one that only this machine has. */
  readonly image: string;
  /** Of this machine. */
  readonly nodeId: string;
  readonly handed: Handed;
}

const nanosecondsPerMs = 1_000_000;

/** What of the app's own directory its tasks see. */
export function sharedMounts(
  app: RunnableApp,
  { options }: ContainerConfig,
): NonNullable<HostConfig["Mounts"]> {
  const named = namedPlaces(app, dockerRuntime(app));
  // Its files are handed over: the directory itself is needed only where something else is kept there.
  return (options.HostConfig.Mounts ?? []).filter(
    ({ Target }) => Target !== mountPoints.data || named.has("data"),
  );
}

/**
 * @throws SvcError `not_possible` for what a swarm cannot give a container; `denied` for what the owner may have on this
 *   machine alone
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
      `app "${app.id}" ${cannot.join(", ")}, which no swarm gives a container`,
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
  const { storeId, name, image, nodeId } = options;
  const { replicas, ports } = placementOf(app);
  const mounts = sharedMounts(app, config);
  // Data and images that this machine alone has keep it here.
  const isHere = mounts.length > 0 || !image.includes("@");
  const { restart } = app.manifest;
  const published = portsOf(config, ports);
  return plain({
    Name: name,
    Labels: { ...appLabels(app.id, storeId), [scaledLabel]: "true" },
    TaskTemplate: {
      ContainerSpec: containerSpec(app, config, options),
      Resources: { Limits: limitsOf(config.options.HostConfig) },
      RestartPolicy: {
        Condition: { never: "none", "on-failure": "on-failure", always: "any" }[restart.policy],
        Delay: restart.delayMs * nanosecondsPerMs,
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
  { storeId, image, handed }: ServiceSpecOptions,
): JsonObject {
  const { options } = config;
  const host = options.HostConfig;
  const env = (options.Env ?? []).filter((pair) => !handed.withheld.has(pair.slice(0, pair.indexOf("="))));
  const fromFiles = Object.entries(handed.env).map(([key, value]) => `${key}=${value}`);
  return plain({
    Image: image,
    Labels: appLabels(app.id, storeId),
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
    // Engines with an API before 1.44 take no note of it: what a user's program gains there is empty.
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
