/** Reads what a container asks of the host out of the options that the engine gets: the very ones. */
import type { ContainerCreateOptions, HostConfig } from "dockerode";
import {
  bindOf,
  deviceAsks,
  groupAsks,
  listAsks,
  logDriverAsks,
  namespaceAsks,
  propagationAsks,
  securityOptAsks,
  tooLong,
  volumeDriverAsks,
  type Bind,
  type ContainerClaims,
  type HostAsk,
} from "../container-policy.ts";

/** Options that stay within the container, whatever their value. */
const harmless = new Set([
  ...["name", "platform", "Hostname", "Domainname", "AttachStdin", "AttachStdout", "AttachStderr", "Tty"],
  ...["OpenStdin", "StdinOnce", "Env", "Cmd", "Entrypoint", "Image", "Labels", "Volumes", "WorkingDir"],
  ...["NetworkDisabled", "ExposedPorts", "StopSignal", "StopTimeout", "Healthcheck", "Shell", "ArgsEscaped"],
]);
const harmlessOnHost = new Set([
  ...["RestartPolicy", "AutoRemove", "CapDrop", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "Init"],
  ...["ReadonlyRootfs", "ShmSize", "Tmpfs", "Memory", "MemoryReservation", "MemorySwap", "MemorySwappiness"],
  ...["NanoCpus", "CpuShares", "CpuPeriod", "CpuQuota", "CpusetCpus", "CpusetMems", "PidsLimit", "Ulimits"],
  ...["ConsoleSize", "PublishAllPorts"],
]);

type Reader = (value: unknown, claims: Draft) => void;

/** Options that have a meaning for the host, and how to read it. */
const readers: Readonly<Record<string, Reader>> = {
  Privileged: (_value, { asks }) => asks.push({ permission: "privileged", what: "runs privileged" }),
  NetworkMode: (value, { asks, network }) =>
    asks.push(...namespaceAsks("network", text(value), new Set(["default", "bridge", "none", network]))),
  PidMode: namespace("pid", []),
  IpcMode: namespace("ipc", ["none", "private", "shareable"]),
  UTSMode: namespace("uts", []),
  UsernsMode: namespace("userns", []),
  CgroupnsMode: namespace("cgroup", ["private"]),
  Cgroup: namespace("cgroup", []),
  Devices: (value, { asks }) =>
    asks.push(...deviceAsks(records(value).map(({ PathOnHost }) => text(PathOnHost)))),
  DeviceRequests: some("devices", "requests devices"),
  DeviceCgroupRules: list("devices", "sets the device rule"),
  CapAdd: list("capabilities", "adds the capability"),
  GroupAdd: (value, { asks }) => asks.push(...groupAsks(texts(value))),
  SecurityOpt: (value, { asks }) => asks.push(...securityOptAsks(texts(value))),
  // An empty list uncovers what is hidden by default.
  MaskedPaths: uncovered,
  ReadonlyPaths: uncovered,
  Sysctls: some("privileged", "sets kernel parameters"),
  Runtime: list("privileged", "runs under"),
  CgroupParent: list("privileged", "joins the cgroup"),
  VolumesFrom: list("host_mounts", "mounts the volumes of the container"),
  VolumeDriver: (value, { asks }) => asks.push(...volumeDriverAsks(text(value), undefined)),
  Links: list("host_network", "links to the container"),
  LogConfig: (value, { asks }) => asks.push(...logDriverAsks(text(record(value)["Type"]))),
  Binds: (value, draft) => {
    for (const bind of texts(value)) readBind(bind, draft);
  },
  Mounts: (value, draft) => {
    for (const mount of records(value)) readMount(mount, draft);
  },
  PortBindings: (value, { hostPorts }) => {
    for (const binding of Object.values(record(value)).flatMap(records)) {
      // A range counts as its lowest port.
      hostPorts.push(Number.parseInt(text(binding["HostPort"]), 10) || 0);
    }
  },
};

interface Draft {
  asks: HostAsk[];
  binds: Bind[];
  hostPorts: number[];
  /** The app's own. */
  readonly network: string;
}

/** @param network the name of the app's own */
export function createClaims(
  options: ContainerCreateOptions & { HostConfig?: HostConfig | undefined },
  network: string,
): ContainerClaims {
  const { HostConfig: hostConfig = {}, User: user = "", NetworkingConfig: networking, ...rest } = options;
  const draft: Draft = { asks: [], binds: [], hostPorts: [], network };
  for (const [key, value] of Object.entries(rest)) {
    if (!harmless.has(key) && isSet(value)) draft.asks.push(unknownOption(key));
  }
  for (const network of Object.keys(networking?.EndpointsConfig ?? {})) {
    draft.asks.push(...namespaceAsks("network", network, new Set(["bridge"])));
  }
  for (const [key, value] of Object.entries(hostConfig)) {
    if (harmlessOnHost.has(key) || !isSet(value)) continue;
    const read = Object.hasOwn(readers, key) ? readers[key] : undefined;
    if (read === undefined) draft.asks.push(unknownOption(key));
    else read(value, draft);
  }
  const { asks, binds, hostPorts } = draft;
  const excess = tooLong(JSON.stringify(options).length);
  return { subject: "the container", user, asks, binds, hostPorts, excess };
}

function unknownOption(key: string): HostAsk {
  return { permission: "privileged", what: `sets ${key}` };
}

function readBind(bind: string, { asks, binds }: Draft): void {
  const [source = "", , options = ""] = bind.split(":");
  // A name is a volume of the engine, which another app may have.
  if (!source.startsWith("/")) {
    asks.push({ permission: "host_mounts", what: `mounts the volume "${source}"` });
    return;
  }
  const words = options.split(",");
  for (const word of words) {
    if (/(shared|slave|private)$/.test(word)) asks.push(...propagationAsks(word));
  }
  binds.push(bindOf(source, words.includes("ro")));
}

function readMount(mount: Readonly<Record<string, unknown>>, { asks, binds }: Draft): void {
  const source = text(mount["Source"]);
  switch (mount["Type"]) {
    case "tmpfs":
      return;
    case "bind":
      asks.push(...propagationAsks(text(record(mount["BindOptions"])["Propagation"])));
      binds.push(bindOf(source, mount["ReadOnly"] === true));
      return;
    case "volume": {
      const driver = record(record(mount["VolumeOptions"])["DriverConfig"]);
      asks.push(...volumeDriverAsks(text(driver["Name"]), record(driver["Options"])));
      if (source !== "") asks.push({ permission: "host_mounts", what: `mounts the volume "${source}"` });
      return;
    }
    default:
      asks.push({ permission: "host_mounts", what: `mounts "${source}" as ${text(mount["Type"])}` });
  }
}

function some(permission: HostAsk["permission"], what: string): Reader {
  return (value, { asks }) => {
    if (Object.keys(record(value)).length > 0) asks.push({ permission, what });
  };
}

function list(permission: HostAsk["permission"], verb: string): Reader {
  return (value, { asks }) => asks.push(...listAsks(texts(value), permission, verb));
}

function namespace(kind: Parameters<typeof namespaceAsks>[0], own: readonly string[]): Reader {
  return (value, { asks }) => asks.push(...namespaceAsks(kind, text(value), new Set(own)));
}

function uncovered(value: unknown, { asks }: Draft): void {
  if (Array.isArray(value)) asks.push({ permission: "privileged", what: "uncovers files of the kernel" });
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false && value !== "" && value !== 0;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function texts(value: unknown): string[] {
  return [value].flat().map((item) => (typeof item === "string" ? item : JSON.stringify(item)));
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function records(value: unknown): Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.map(record) : [];
}
