/** The part of a container's description that svc keeps in memory: enough for lists, states and ports. */
import type { ContainerInfo, ContainerInspectInfo } from "dockerode";
import { composeProjectLabel, composeServiceLabel, imageLabel, type Labels } from "./attribution.ts";
import { descriptionBytes } from "./engine-objects.ts";
import type { EngineObject } from "./ownership.ts";

/** The engine's names of states. */
export type ContainerState = "created" | "running" | "paused" | "restarting" | "removing" | "exited" | "dead";
export type ContainerHealth = "none" | "starting" | "healthy" | "unhealthy";

/** Whether a container runs, or will run without any action. */
export function isUpState(state: ContainerState): boolean {
  return state === "running" || state === "restarting" || state === "paused";
}

export interface PublishedPort {
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly containerPort: number;
  /** Absent: exposed, but not published. */
  readonly hostPort?: number;
  /** The host address that the port is bound to. */
  readonly hostAddress?: string;
}

export interface ContainerMount {
  readonly type: string;
  /** Name of a volume. */
  readonly name?: string;
  /** Path on the host. */
  readonly source: string;
  /** Path in the container. */
  readonly destination: string;
  readonly isWritable: boolean;
}

export interface ContainerRecord {
  readonly id: string;
  /** Without the leading slash. */
  readonly name: string;
  /** The image's name when the container was created; an ID for an image without a name. */
  readonly image: string;
  readonly imageId: string;
  readonly state: ContainerState;
  /** The engine's current status line, such as `Up 3 minutes (healthy)`. */
  readonly status: string;
  /** Unix milliseconds; the status line stays the same until then. */
  readonly statusUntilMs: number;
  readonly health: ContainerHealth;
  /** Output of the last health check; empty without one. */
  readonly healthOutput: string;
  /** Exit code of the last process that exited. */
  readonly exitCode: number;
  readonly wasOutOfMemory: boolean;
  /** Why the engine could not start the container; empty otherwise. */
  readonly error: string;
  /** How often the engine's restart policy has restarted it. */
  readonly restarts: number;
  /** `no`, `on-failure`, `always` or `unless-stopped`. */
  readonly restartPolicy: string;
  /** PID on the host; absent while the container is not running. */
  readonly pid?: number;
  readonly createdAtMs: number;
  readonly startedAtMs: number | undefined;
  readonly finishedAtMs: number | undefined;
  readonly hasTerminal: boolean;
  readonly labels: Labels;
  readonly composeProject?: string;
  readonly composeService?: string;
  /** Published and exposed ports, by number. */
  readonly ports: readonly PublishedPort[];
  readonly mounts: readonly ContainerMount[];
  /** Addresses by network name. */
  readonly networks: Readonly<Record<string, string>>;
  /** `bridge`, `host`, `none`, a network's name, or `container:<id>`. */
  readonly networkMode: string;
  /** The engine's log driver, such as `json-file`. */
  readonly logDriver: string;
  /** Absent: no limit. */
  readonly memoryLimitBytes?: number;
  /** Approximate size of its entry in the engine's list of containers. */
  readonly descriptionBytes: number;
}

/** The name in the engine's lists, which begin names with a slash; the short ID for a container without a name. */
export function listedName({ Id, Names }: Pick<ContainerInfo, "Id" | "Names">): string {
  return Names[0]?.slice(1) ?? Id.slice(0, 12);
}

/** The parts of a record that determine its owner. */
export function namedObject({ name, labels }: Pick<ContainerRecord, "name" | "labels">): EngineObject {
  return { labels, names: [name] };
}

/** A record without the status line, which depends on the time. */
export type ContainerFacts = Omit<ContainerRecord, "status" | "statusUntilMs">;

const maxHealthOutputLength = 1_000;

export function containerFacts(info: ContainerInspectInfo): ContainerFacts {
  const { State: state, Config: config, HostConfig: host } = info;
  // The engine may omit labels or send null, unlike the declared type.
  const labels = (config.Labels as Labels | null) ?? {};
  // Empty where svc blanked a label of the image.
  const project = labels[composeProjectLabel] || undefined;
  const service = labels[composeServiceLabel] || undefined;
  const memoryLimitBytes = host.Memory ?? 0;
  return {
    id: info.Id,
    name: info.Name.replace(/^\//, ""),
    image: config.Image.startsWith("sha256:") ? labels[imageLabel] || config.Image : config.Image,
    imageId: info.Image,
    state: state.Status as ContainerState,
    health: healthOf(state.Health?.Status),
    healthOutput:
      (state.Health?.Log as { Output: string }[] | null | undefined)
        ?.at(-1)
        ?.Output.slice(0, maxHealthOutputLength) ?? "",
    exitCode: state.ExitCode,
    wasOutOfMemory: state.OOMKilled,
    error: state.Error,
    restarts: info.RestartCount,
    restartPolicy: host.RestartPolicy?.Name || "no",
    ...(state.Pid > 0 && { pid: state.Pid }),
    createdAtMs: Date.parse(info.Created),
    startedAtMs: instant(state.StartedAt),
    finishedAtMs: instant(state.FinishedAt),
    hasTerminal: config.Tty,
    labels,
    ...(project !== undefined && { composeProject: project }),
    ...(service !== undefined && { composeService: service }),
    ports: portsOf(info),
    mounts: info.Mounts.map((mount) => ({
      type: mount.Type,
      ...(mount.Name !== undefined && { name: mount.Name }),
      source: mount.Source,
      destination: mount.Destination,
      isWritable: mount.RW,
    })),
    networks: Object.fromEntries(
      Object.entries(
        (info.NetworkSettings.Networks as Record<string, { IPAddress?: string }> | null) ?? {},
      ).map(([name, { IPAddress = "" }]) => [name, IPAddress]),
    ),
    networkMode: host.NetworkMode ?? "",
    logDriver: host.LogConfig?.Type ?? "",
    ...(memoryLimitBytes > 0 && { memoryLimitBytes }),
    descriptionBytes: descriptionBytes([labels, info.Path, info.Args, config.ExposedPorts, info.Mounts]),
  };
}

function healthOf(word: string | undefined): ContainerHealth {
  return word === "starting" || word === "healthy" || word === "unhealthy" ? word : "none";
}

/** Unix milliseconds; undefined for the engine's zero time, year 1. */
function instant(text: string): number | undefined {
  const ms = Date.parse(text);
  return ms > 0 ? ms : undefined;
}

function portsOf(info: ContainerInspectInfo): PublishedPort[] {
  type Bindings = Record<string, { HostIp: string; HostPort: string }[] | null>;
  const declared = (info.Config.ExposedPorts as Record<string, unknown> | null | undefined) ?? {};
  // A container that is not running has no bound ports.
  const bound = (info.NetworkSettings.Ports as Bindings | null) ?? {};
  const names = new Set([...Object.keys(bound), ...Object.keys(declared)]);
  const ports = [...names].flatMap((name): PublishedPort[] => {
    const [number = "", protocol = "tcp"] = name.split("/");
    const port = { protocol: protocol as PublishedPort["protocol"], containerPort: Number(number) };
    const bindings = bound[name] ?? [];
    if (bindings.length === 0) return [port];
    return bindings.map(({ HostIp, HostPort }) => ({
      ...port,
      hostPort: Number(HostPort),
      hostAddress: HostIp,
    }));
  });
  return ports.sort((a, b) => a.containerPort - b.containerPort || a.protocol.localeCompare(b.protocol));
}
