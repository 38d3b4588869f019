/** A container as svc remembers it: what lists, states and ports are made of, and no more. */
import type { ContainerInfo, ContainerInspectInfo } from "dockerode";
import { composeProjectLabel, composeServiceLabel, imageLabel, type Labels } from "./attribution.ts";

/** The engine's state words. */
export type ContainerState = "created" | "running" | "paused" | "restarting" | "removing" | "exited" | "dead";
export type ContainerHealth = "none" | "starting" | "healthy" | "unhealthy";

/** Whether a container runs, or will without anybody's doing. */
export function isUpState(state: ContainerState): boolean {
  return state === "running" || state === "restarting" || state === "paused";
}

export interface PublishedPort {
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly containerPort: number;
  /** Absent: declared, but not published. */
  readonly hostPort?: number;
  /** The host's address it is bound to. */
  readonly hostAddress?: string;
}

export interface ContainerMount {
  readonly type: string;
  /** Of a volume. */
  readonly name?: string;
  /** Path on the host. */
  readonly source: string;
  /** Path inside. */
  readonly destination: string;
  readonly isWritable: boolean;
}

export interface ContainerRecord {
  readonly id: string;
  /** Without the leading slash. */
  readonly name: string;
  /** What its image was called when it was made; an id where nobody gave it a name. */
  readonly image: string;
  readonly imageId: string;
  readonly state: ContainerState;
  /** The engine's status line as of now, such as `Up 3 minutes (healthy)`. */
  readonly status: string;
  /** Unix milliseconds: until then the status line reads the same. */
  readonly statusUntilMs: number;
  readonly health: ContainerHealth;
  /** What the last health check printed; empty without one. */
  readonly healthOutput: string;
  /** Of the last process that ended. */
  readonly exitCode: number;
  readonly wasOutOfMemory: boolean;
  /** Why the engine could not start it; empty when it could. */
  readonly error: string;
  /** How often the engine's restart policy started it again. */
  readonly restarts: number;
  /** The engine's word: `no`, `on-failure`, `always` or `unless-stopped`. */
  readonly restartPolicy: string;
  /** On the host; absent while nothing runs. */
  readonly pid?: number;
  readonly createdAtMs: number;
  readonly startedAtMs: number | undefined;
  readonly finishedAtMs: number | undefined;
  readonly hasTerminal: boolean;
  readonly labels: Labels;
  readonly composeProject?: string;
  readonly composeService?: string;
  /** Published and declared ones, by number. */
  readonly ports: readonly PublishedPort[];
  readonly mounts: readonly ContainerMount[];
  /** Its addresses by the names of its networks. */
  readonly networks: Readonly<Record<string, string>>;
  /** `bridge`, `host`, `none`, a network's name, or `container:<id>`. */
  readonly networkMode: string;
  /** The engine's log driver, such as `json-file`. */
  readonly logDriver: string;
  /** Absent: no limit. */
  readonly memoryLimitBytes?: number;
}

/** Its name in the engine's lists, which put a slash before it; the beginning of its id where it has none. */
export function listedName({ Id, Names }: Pick<ContainerInfo, "Id" | "Names">): string {
  return Names[0]?.slice(1) ?? Id.slice(0, 12);
}

/** What the engine says of one container, without the status line, which depends on the time. */
export type ContainerFacts = Omit<ContainerRecord, "status" | "statusUntilMs">;

const maxHealthOutputLength = 1_000;

export function containerFacts(info: ContainerInspectInfo): ContainerFacts {
  const { State: state, Config: config, HostConfig: host } = info;
  // The engine leaves out or nulls what the type says is always there.
  const labels = (config.Labels as Labels | null) ?? {};
  const project = labels[composeProjectLabel];
  const service = labels[composeServiceLabel];
  const memoryLimitBytes = host.Memory ?? 0;
  return {
    id: info.Id,
    name: info.Name.replace(/^\//, ""),
    image: config.Image.startsWith("sha256:") ? (labels[imageLabel] ?? config.Image) : config.Image,
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
  };
}

function healthOf(word: string | undefined): ContainerHealth {
  return word === "starting" || word === "healthy" || word === "unhealthy" ? word : "none";
}

/** Unix milliseconds; the engine's zero time, year 1, is none. */
function instant(text: string): number | undefined {
  const ms = Date.parse(text);
  return ms > 0 ? ms : undefined;
}

function portsOf(info: ContainerInspectInfo): PublishedPort[] {
  type Bindings = Record<string, { HostIp: string; HostPort: string }[] | null>;
  const declared = (info.Config.ExposedPorts as Record<string, unknown> | null | undefined) ?? {};
  // Nothing is bound while nothing runs.
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
