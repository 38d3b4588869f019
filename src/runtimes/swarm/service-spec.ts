/** From the container that an app would be on this machine to the service that it is on a swarm. */
import type { HostConfig } from "dockerode";
import { appLabels } from "../../docker/attribution.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { usersContainers } from "../container-policy.ts";
import type { ContainerConfig } from "../docker/container-config.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import { mountPoints, namedPlaces } from "../docker/container-scope.ts";
import type { Placement, RunnableApp } from "../runtime.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { publishedPorts, type PublishOptions } from "../published-ports.ts";
import type { Handed } from "./handed-files.ts";
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
  /** What {@link handOver} answered. */
  readonly given: { readonly Secrets: object[]; readonly Configs: object[] };
}

const nanosecondsPerMs = 1_000_000;
/** After an update a task has to live for so long to count as well. */
const monitorMs = 5_000;

/** @throws Error for an app that is not on a swarm */
export function placementOf({ id, placement }: Pick<RunnableApp, "id" | "placement">): Placement {
  if (placement === undefined) throw new Error(`app ${id} runs on this machine`);
  return placement;
}

/** @throws SvcError `denied` for more tasks than a regular user's app may have */
export function requireFewTasks(app: Pick<RunnableApp, "id" | "ownerUid" | "placement">): void {
  const { replicas } = placementOf(app);
  if (app.ownerUid === 0 || replicas <= usersContainers) return;
  const message = `app "${app.id}" would run in ${replicas} tasks, more than ${usersContainers}: only root's apps may`;
  throw new SvcError("denied", message);
}

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
  requireFewTasks(app);
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
  const mounts = sharedMounts(app, config);
  if (app.ownerUid !== 0 && mounts.length > 0) {
    // Whoever owns the directory could lead the mount elsewhere between two starts, and the swarm starts without asking svc.
    const message = `app "${app.id}" keeps data in its directory, and a swarm starts its containers without svc's check: on a swarm only root's apps may`;
    throw new SvcError("denied", message);
  }
  const closed = publishedPorts(app, publish).find(({ address }) => !["0.0.0.0", "::"].includes(address));
  if (closed !== undefined) {
    const message = `port ${closed.name} of app "${app.id}" is published at ${closed.address} only, and a swarm publishes at all addresses of its nodes: have it published at 0.0.0.0`;
    throw new SvcError("denied", message);
  }
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
    Labels: { ...appLabels(app.id, storeId), [settingsLabel]: settingsDigest(app) },
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
    UpdateConfig: {
      Parallelism: 1,
      FailureAction: "rollback",
      Monitor: monitorMs * nanosecondsPerMs,
      // Two tasks cannot have the same port of a node, nor the same data.
      Order: mounts.length > 0 || (ports === "host" && published.length > 0) ? "stop-first" : "start-first",
    },
    RollbackConfig: { Parallelism: 0, FailureAction: "pause", Order: "stop-first" },
    EndpointSpec: { Mode: ports === "mesh" ? "vip" : "dnsrr", Ports: published },
  }) as ServiceSpec;
}

function containerSpec(
  app: RunnableApp,
  config: ContainerConfig,
  { storeId, image, handed, given }: ServiceSpecOptions,
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
    Secrets: given.Secrets,
    Configs: given.Configs,
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

/** As JSON has it: what is not there is left out. */
function plain(value: object): JsonValue {
  return JSON.parse(JSON.stringify(value)) as JsonValue;
}
