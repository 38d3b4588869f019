/** Writes the configuration of containers as a compose file. Values that their images set are left out. */
import { isDeepStrictEqual } from "node:util";
import type { ContainerInspectInfo } from "dockerode";
import { isReservedLabel, type Labels } from "../../engine/attribution.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { UnmanagedStack } from "../../engine/unmanaged-stacks.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";

type Config = ContainerInspectInfo["Config"];

/** A container with the settings of its image. */
export interface InspectedContainer {
  readonly record: ContainerRecord;
  readonly info: ContainerInspectInfo;
  /** Undefined if the image was removed. */
  readonly image: Config | undefined;
  /** Keys of the project's own volumes in its compose file, by name. */
  readonly volumeKeys: ReadonlyMap<string, string>;
  /** Keys of the project's own networks, by name. */
  readonly networkKeys: ReadonlyMap<string, string>;
}

/** The name of a container's service. */
export function serviceOf({ name, composeService }: ContainerRecord): string {
  return composeService ?? name.replaceAll(/[^a-zA-Z0-9._-]/g, "-");
}

/** The key of a volume in the generated file. */
export function volumeKeyOf({ volumeKeys }: Pick<InspectedContainer, "volumeKeys">, name: string): string {
  return volumeKeys.get(name) ?? name;
}

/** @param notes gets a sentence for each setting that the file does not have */
export function composeOf(
  stack: UnmanagedStack,
  containers: readonly InspectedContainer[],
  notes: string[],
): JsonObject {
  const services: Record<string, JsonObject> = {};
  const networks: Record<string, JsonObject | null> = {};
  const volumes: Record<string, null> = {};
  for (const each of containers) {
    const name = serviceOf(each.record);
    const known = services[name];
    if (known !== undefined) {
      services[name] = withoutName({ ...known, scale: Number(known["scale"] ?? 1) + 1 });
      continue;
    }
    const joined = networksOf(each);
    Object.assign(networks, joined);
    for (const { Type, Name = "" } of each.info.Mounts)
      if (Type === "volume") volumes[volumeKeyOf(each, Name)] = null;
    services[name] = { ...serviceFor(each, notes), ...joinedNetworks(each, Object.keys(joined), stack) };
  }
  const own = Object.fromEntries(Object.entries(networks).filter(([key]) => key !== "default"));
  return escaped({
    services,
    ...(Object.keys(own).length > 0 && { networks: own }),
    ...(Object.keys(volumes).length > 0 && { volumes }),
  }) as JsonObject;
}

/** Containers of one service cannot share a name. */
function withoutName({ container_name: _, ...service }: JsonObject): JsonObject {
  return service;
}

function serviceFor(container: InspectedContainer, notes: string[]): JsonObject {
  const { record, info, image } = container;
  const { Config: config, HostConfig: host } = info;
  const changed = <K extends keyof Config>(key: K): Config[K] | undefined =>
    isDeepStrictEqual(config[key], image?.[key]) ? undefined : config[key];
  const entrypoint = asList(changed("Entrypoint"));
  const inherited = new Set(asList(image?.Env));
  const volumes = info.Mounts.flatMap((mount) => mountOf(mount, container));
  if ((host as { DeviceRequests?: unknown[] | null }).DeviceRequests?.length)
    notes.push(
      `container "${record.name}" has GPUs, which the compose file does not contain; add them to it`,
    );
  return filled({
    image: record.image,
    container_name: record.name,
    entrypoint,
    command: entrypoint.length > 0 ? asList(config.Cmd) : asList(changed("Cmd")),
    environment: asList(config.Env).filter((entry) => !inherited.has(entry)),
    labels: labelsOf(config.Labels, image?.Labels),
    user: changed("User"),
    working_dir: changed("WorkingDir"),
    // The engine's default is the start of the container's ID.
    hostname: info.Id.startsWith(config.Hostname) || host.NetworkMode === "host" ? "" : config.Hostname,
    domainname: config.Domainname,
    tty: config.Tty,
    stdin_open: config.OpenStdin,
    stop_signal: changed("StopSignal" as keyof Config) as string | undefined,
    stop_grace_period: seconds((config as { StopTimeout?: number | null }).StopTimeout),
    healthcheck: healthOf(changed("Healthcheck")),
    ports: portsOf(host.PortBindings),
    volumes,
    tmpfs: Object.entries((host.Tmpfs as Record<string, string> | null | undefined) ?? {}).map(
      ([path, options]) => (options === "" ? path : `${path}:${options}`),
    ),
    depends_on: dependenciesOf(record.labels),
    restart: restartOf(host.RestartPolicy),
    privileged: host.Privileged,
    read_only: host.ReadonlyRootfs,
    init: host.Init === true,
    cap_add: asList(host.CapAdd),
    cap_drop: asList(host.CapDrop),
    security_opt: asList(host.SecurityOpt).filter((option) => !option.startsWith("label=")),
    group_add: asList(host.GroupAdd),
    devices: ((host.Devices as DeviceMapping[] | null | undefined) ?? []).map(
      ({ PathOnHost, PathInContainer, CgroupPermissions }) =>
        `${PathOnHost}:${PathInContainer}:${CgroupPermissions}`,
    ),
    extra_hosts: asList(host.ExtraHosts),
    dns: asList(host.Dns),
    dns_search: asList(host.DnsSearch),
    sysctls: host.Sysctls ?? {},
    ulimits: Object.fromEntries(
      (host.Ulimits ?? []).map(({ Name = "", Soft = 0, Hard = 0 }) => [Name, { soft: Soft, hard: Hard }]),
    ),
    // The engine's default.
    shm_size: host.ShmSize === 67_108_864 ? 0 : (host.ShmSize ?? 0),
    mem_limit: host.Memory ?? 0,
    cpus: (host.NanoCpus ?? 0) / 1e9,
    pids_limit: Math.max(0, host.PidsLimit ?? 0),
    pid: host.PidMode,
    ipc: ["private", "shareable"].includes(host.IpcMode ?? "") ? "" : host.IpcMode,
    logging: loggingOf(host.LogConfig),
  });
}

interface DeviceMapping {
  PathOnHost: string;
  PathInContainer: string;
  CgroupPermissions: string;
}

interface LogConfig {
  Type: string;
  Config: Record<string, string> | null;
}

/** The project's own networks by their key, others as external ones. */
function networksOf({ record, networkKeys: keys }: InspectedContainer): Record<string, JsonObject | null> {
  const entries = Object.keys(record.networks)
    .filter((name) => !["bridge", "host", "none"].includes(name))
    .map((name): [string, JsonObject | null] => {
      const key = keys.get(name);
      return key === undefined ? [name, { external: true, name }] : [key, null];
    });
  return Object.fromEntries(entries);
}

function joinedNetworks(
  { info }: InspectedContainer,
  keys: readonly string[],
  stack: UnmanagedStack,
): JsonObject {
  const mode = info.HostConfig.NetworkMode ?? "";
  if (mode === "host" || mode === "none") return { network_mode: mode };
  const [, shared] = /^container:(.+)$/.exec(mode) ?? [];
  if (shared !== undefined) {
    const other = stack.containers.find(({ id, name }) => id === shared || name === shared);
    return { network_mode: other === undefined ? mode : `service:${serviceOf(other)}` };
  }
  const isDefault = keys.length === 0 || (keys.length === 1 && keys[0] === "default");
  return isDefault ? {} : { networks: [...keys] };
}

function mountOf(mount: ContainerInspectInfo["Mounts"][number], container: InspectedContainer): JsonObject[] {
  const { Type: type, Name: name = "", Source: source, Destination: target, RW: isWritable } = mount;
  const readOnly = isWritable ? {} : { read_only: true };
  if (type === "volume") return [{ type, source: volumeKeyOf(container, name), target, ...readOnly }];
  if (type !== "bind") return [];
  const { Propagation: propagation } = mount;
  const isDefault = ["", "rprivate"].includes(propagation);
  return [{ type, source, target, ...readOnly, ...(!isDefault && { bind: { propagation } }) }];
}

type Bindings = Record<string, { HostIp?: string; HostPort?: string }[] | null> | null;

/** Ports that name no address, as in compose files: `8200:80`, `53:53/udp`. */
export function portsWithoutAddress({ HostConfig }: ContainerInspectInfo): string[] {
  return portsOf(HostConfig.PortBindings)
    .filter((port) => /^\d+:\d+\//.test(port))
    .map((port) => port.replace(/\/tcp$/, ""));
}

function portsOf(bindings: unknown): string[] {
  return Object.entries((bindings as Bindings) ?? {}).flatMap(([inside, hosts]) =>
    (hosts ?? []).map(({ HostIp: address = "", HostPort: port = "" }) => {
      const host = address.includes(":") ? `[${address}]` : address;
      return `${host === "" ? "" : `${host}:`}${port === "" ? (host === "" ? "" : ":") : `${port}:`}${inside}`;
    }),
  );
}

function labelsOf(labels: Labels | null, inherited: Labels | null | undefined): Record<string, string> {
  const own = Object.entries(labels ?? {}).filter(
    ([name, value]) => !isReservedLabel(name) && inherited?.[name] !== value,
  );
  return Object.fromEntries(own);
}

function restartOf(policy: ContainerInspectInfo["HostConfig"]["RestartPolicy"]): string {
  const { Name: name = "", MaximumRetryCount: attempts = 0 } = policy ?? {};
  if (name === "") return "no";
  return name === "on-failure" && attempts > 0 ? `${name}:${attempts}` : name;
}

/** Compose records them as `db:service_healthy:false,cache:service_started:true`. */
function dependenciesOf(labels: Labels | null): JsonObject {
  const text = labels?.["com.docker.compose.depends_on"] ?? "";
  const parts = text.split(",").flatMap((part): [string, JsonObject][] => {
    const [service = "", condition = "", restart = ""] = part.split(":");
    if (service === "") return [];
    return [
      [service, { condition: condition || "service_started", ...(restart === "true" && { restart: true }) }],
    ];
  });
  return Object.fromEntries(parts);
}

function healthOf(health: Config["Healthcheck"]): JsonObject {
  const { Test: test, Interval, Timeout, Retries: retries, StartPeriod } = health ?? {};
  if (test === undefined || test.length === 0) return {};
  return filled({
    test: [...test],
    interval: nanoseconds(Interval),
    timeout: nanoseconds(Timeout),
    retries: retries ?? 0,
    start_period: nanoseconds(StartPeriod),
  });
}

function loggingOf(log: LogConfig | undefined): JsonObject {
  const { Type: driver = "json-file", Config: options } = log ?? {};
  if (driver === "json-file" && Object.keys(options ?? {}).length === 0) return {};
  return filled({ driver, options: options ?? {} });
}

function nanoseconds(value: number | undefined): string {
  return value === undefined || value === 0 ? "" : `${value / 1e6}ms`;
}

function seconds(value: number | null | undefined): string {
  return value === undefined || value === null ? "" : `${value}s`;
}

/** Engines return null and a text where their client's types have a list. */
function asList(value: unknown): string[] {
  if (typeof value === "string") return value === "" ? [] : [value];
  return Array.isArray(value) ? value.map(String) : [];
}

/** Without values that are the default. */
function filled(values: Readonly<Record<string, JsonValue | undefined>>): JsonObject {
  const isEmpty = (value: JsonValue | undefined): boolean =>
    [undefined, null, "", 0, false].includes(value as null) ||
    (typeof value === "object" && value !== null && Object.keys(value).length === 0);
  return Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) =>
      isEmpty(value) || value === undefined ? [] : [[key, value] as const],
    ),
  );
}

/** Compose replaces variables in texts. */
function escaped(value: JsonValue): JsonValue {
  if (typeof value === "string") return value.replaceAll("$", "$$$$");
  if (Array.isArray(value)) return value.map(escaped);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, escaped(each)]));
}
