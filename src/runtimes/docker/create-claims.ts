/** Determines what a container requests from the host, from exactly the options that the engine receives. */
import type { ContainerCreateOptions, HostConfig } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import { mapValues } from "../../lib/map-values.ts";
import { bindOf, tooLong, type Bind, type ContainerClaims } from "../containers/container-policy.ts";
import {
  capabilityRequirements,
  deviceRequirements,
  groupRequirements,
  listRequirements,
  logDriverRequirements,
  namespaceRequirements,
  propagationRequirements,
  securityOptRequirements,
  volumeDriverRequirements,
  type HostRequirement,
} from "../containers/host-requirements.ts";
import { excessOfHealth, excessOfInMemory, excessOfLimit, excessOfLog } from "../containers/user-bounds.ts";

const nanosecondsPerSec = 1_000_000_000;

/** Options that affect only the container, whatever their value, with their effect. */
const harmless: Readonly<Record<string, string>> = {
  name: "names the container",
  platform: "selects a platform of the image",
  ArgsEscaped: "is read on Windows",
  AttachStderr: "is for clients that attach",
  AttachStdin: "is for clients that attach",
  AttachStdout: "is for clients that attach",
  Cmd: "runs inside",
  Domainname: "is set in the container's own UTS namespace",
  Entrypoint: "runs inside",
  Env: "is the environment of what runs inside",
  ExposedPorts: "describes the container; publishes nothing",
  Hostname: "is set in the container's own UTS namespace",
  Image: "is what svc has pulled or built",
  Labels: "are svc's own",
  NetworkDisabled: "takes the network away",
  OpenStdin: "keeps standard input open",
  Shell: "is for commands of the image that are text",
  StdinOnce: "closes standard input after a client",
  StopSignal: "goes to the container's first process",
  StopTimeout: "is how long the engine waits at a stop; the manifest's schema bounds it",
  Tty: "gives it a terminal of its own",
  Volumes: "makes volumes without a name",
  WorkingDir: "is made inside where it is missing",
};
const harmlessOnHost: Readonly<Record<string, string>> = {
  AutoRemove: "removes the container at its end",
  CapDrop: "takes capabilities away",
  ConsoleSize: "is the first size of its terminal",
  CpuPeriod: "is a limit",
  CpuQuota: "is a limit",
  CpusetCpus: "takes CPUs away",
  CpusetMems: "takes memory nodes away",
  Dns: "is used from the container's network namespace",
  DnsOptions: "are lines of its own resolv.conf",
  DnsSearch: "are lines of its own resolv.conf",
  ExtraHosts: "are lines of its own /etc/hosts",
  Init: "has the engine's own init run inside",
  Memory: "is a limit",
  MemoryReservation: "is a limit",
  MemorySwap: "is a limit",
  MemorySwappiness: "is for its own control group",
  NanoCpus: "is a limit",
  ReadonlyRootfs: "takes something away",
  RestartPolicy: "is svc's own",
};

type Reader = (value: unknown, claims: Draft) => void;

/** Options that have a meaning for the host, and how to read it. */
const readers: Readonly<Record<string, Reader>> = {
  Privileged: (_value, { requirements }) =>
    requirements.push({ permission: "privileged", what: "runs privileged" }),
  NetworkMode: (value, { requirements, network }) =>
    requirements.push(
      ...namespaceRequirements("network", text(value), new Set(["default", "bridge", "none", network])),
    ),
  PidMode: namespace("pid", []),
  IpcMode: namespace("ipc", ["none", "private", "shareable"]),
  UTSMode: namespace("uts", []),
  UsernsMode: namespace("userns", []),
  CgroupnsMode: namespace("cgroup", ["private"]),
  Cgroup: namespace("cgroup", []),
  Devices: (value, { requirements }) =>
    requirements.push(...deviceRequirements(records(value).map(({ PathOnHost }) => text(PathOnHost)))),
  DeviceRequests: some("devices", "requests devices"),
  DeviceCgroupRules: list("devices", "sets the device rule"),
  CapAdd: (value, { requirements }) => requirements.push(...capabilityRequirements(texts(value))),
  GroupAdd: (value, { requirements }) => requirements.push(...groupRequirements(texts(value))),
  SecurityOpt: (value, { requirements }) => requirements.push(...securityOptRequirements(texts(value))),
  // An empty list uncovers what is hidden by default.
  MaskedPaths: uncovered,
  ReadonlyPaths: uncovered,
  Sysctls: some("privileged", "sets kernel parameters"),
  Runtime: list("privileged", "runs under"),
  CgroupParent: list("privileged", "joins the cgroup"),
  VolumesFrom: list("host_mounts", "mounts the volumes of the container"),
  VolumeDriver: (value, { requirements }) =>
    requirements.push(...volumeDriverRequirements(text(value), undefined)),
  Links: list("host_network", "links to the container"),
  LogConfig: (value, { requirements, excess }) => {
    const { Type: type, Config: config } = record(value);
    requirements.push(...logDriverRequirements(text(type)));
    excess.push(...excessOfLog(mapValues(record(config), shown)));
  },
  Healthcheck: (value, { requirements, excess }) => {
    const { Test: test, Interval, StartInterval, Timeout, StartPeriod, Retries, ...rest } = record(value);
    requirements.push(...Object.keys(rest).map(unknownOption));
    const [kind = ""] = texts(test ?? []);
    if (!["", "NONE", "CMD", "CMD-SHELL"].includes(kind))
      requirements.push(unknownOption(`a health check of ${kind}`));
    excess.push(
      ...excessOfHealth({
        ...{ interval: secs(Interval), startInterval: secs(StartInterval) },
        ...{ timeout: secs(Timeout), startPeriod: secs(StartPeriod) },
        retries: Retries === undefined ? undefined : Number(Retries),
        command: texts(test ?? []),
      }),
    );
  },
  Ulimits: (value, { excess }) => {
    for (const { Name, Soft, Hard } of records(value)) {
      excess.push(...excessOfLimit(text(Name), [shown(Soft), shown(Hard)]));
    }
  },
  Tmpfs: (value, { inMemory }) => inMemory.push(...Object.values(record(value)).map(text)),
  ShmSize: atMost("bytes of shared memory", 2 * 2 ** 30),
  PidsLimit: atMost("processes", 32_768),
  CpuShares: atMost("CPU shares", 1_024),
  PublishAllPorts: (_value, { excess }) => excess.push("publishes all ports of its image"),
  Binds: (value, draft) => {
    for (const bind of texts(value)) readBind(bind, draft);
  },
  Mounts: (value, draft) => {
    for (const mount of records(value)) readMount(mount, draft);
  },
  PortBindings: (value, { hostPorts }) => {
    for (const binding of Object.values(record(value)).flatMap(records)) {
      hostPorts.push(text(binding["HostPort"]));
    }
  },
};

interface Draft {
  requirements: HostRequirement[];
  binds: Bind[];
  hostPorts: string[];
  excess: string[];
  /** Options of its file systems in memory. */
  inMemory: string[];
  /** The app's own. */
  readonly network: string;
}

/** @param network the name of the app's own */
export function createClaims(
  options: ContainerCreateOptions & { HostConfig?: HostConfig | undefined },
  network: string,
): ContainerClaims {
  const { HostConfig: hostConfig = {}, User: user = "", NetworkingConfig: networking, ...rest } = options;
  const draft: Draft = { requirements: [], binds: [], hostPorts: [], excess: [], inMemory: [], network };
  readOptions(rest, harmless, draft);
  for (const network of Object.keys(networking?.EndpointsConfig ?? {})) {
    draft.requirements.push(...namespaceRequirements("network", network, new Set(["bridge"])));
  }
  readOptions(hostConfig, harmlessOnHost, draft);
  const { requirements, binds, hostPorts, inMemory } = draft;
  const described = descriptionBytes(options);
  const excess = [...draft.excess, ...excessOfInMemory(inMemory), ...tooLong(described)];
  const uses = { containers: 1, ports: hostPorts.length, descriptionBytes: described };
  return { subject: "the container", user, requirements, binds, hostPorts, excess, uses };
}

function readOptions(options: object, known: Readonly<Record<string, string>>, draft: Draft): void {
  for (const [key, value] of Object.entries(options)) {
    if (Object.hasOwn(known, key) || !isSet(value)) continue;
    const read = Object.hasOwn(readers, key) ? readers[key] : undefined;
    if (read === undefined) draft.requirements.push(unknownOption(key));
    else read(value, draft);
  }
}

/** A negative number means unlimited. */
function atMost(what: string, most: number): Reader {
  return (value, { excess }) => {
    const number = Number(value);
    if (!(number >= 0 && number <= most)) excess.push(`requests ${shown(value)} ${what}, more than ${most}`);
  };
}

/** Seconds of what the engine counts in nanoseconds; 0 is its default. */
function secs(value: unknown): number | undefined {
  return isSet(value) ? Number(value) / nanosecondsPerSec : undefined;
}

function unknownOption(key: string): HostRequirement {
  return { permission: "privileged", what: `sets ${key}` };
}

function readBind(bind: string, { requirements, binds, excess }: Draft): void {
  const [source = "", , options = ""] = bind.split(":");
  // A name is a volume of the engine, which another app may have.
  if (!source.startsWith("/")) {
    requirements.push({ permission: "host_mounts", what: `mounts the volume "${source}"` });
    return;
  }
  const words = options.split(",");
  for (const word of words) {
    if (/(shared|slave|private)$/.test(word)) requirements.push(...propagationRequirements(word));
    // The engine does that as root, for whatever is there.
    if (/^z$/i.test(word)) excess.push(`has "${source}" labelled for SELinux by root ("${word}")`);
  }
  binds.push(bindOf(source, words.includes("ro")));
}

function readMount(mount: Readonly<Record<string, unknown>>, { requirements, binds, inMemory }: Draft): void {
  const source = text(mount["Source"]);
  switch (mount["Type"]) {
    case "tmpfs": {
      const { SizeBytes: size } = record(mount["TmpfsOptions"]);
      inMemory.push(isSet(size) ? `size=${shown(size)}` : "");
      return;
    }
    case "bind":
      requirements.push(...propagationRequirements(text(record(mount["BindOptions"])["Propagation"])));
      binds.push(bindOf(source, mount["ReadOnly"] === true));
      return;
    case "volume": {
      const driver = record(record(mount["VolumeOptions"])["DriverConfig"]);
      requirements.push(...volumeDriverRequirements(text(driver["Name"]), record(driver["Options"])));
      if (source !== "")
        requirements.push({ permission: "host_mounts", what: `mounts the volume "${source}"` });
      return;
    }
    default:
      requirements.push({ permission: "host_mounts", what: `mounts "${source}" as ${text(mount["Type"])}` });
  }
}

function some(permission: HostRequirement["permission"], what: string): Reader {
  return (value, { requirements }) => {
    if (Object.keys(record(value)).length > 0) requirements.push({ permission, what });
  };
}

function list(permission: HostRequirement["permission"], verb: string): Reader {
  return (value, { requirements }) => requirements.push(...listRequirements(texts(value), permission, verb));
}

function namespace(kind: Parameters<typeof namespaceRequirements>[0], own: readonly string[]): Reader {
  return (value, { requirements }) =>
    requirements.push(...namespaceRequirements(kind, text(value), new Set(own)));
}

function uncovered(value: unknown, { requirements }: Draft): void {
  if (Array.isArray(value))
    requirements.push({ permission: "privileged", what: "uncovers files of the kernel" });
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false && value !== "" && value !== 0;
}

function shown(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function texts(value: unknown): string[] {
  return [value].flat().map(shown);
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function records(value: unknown): Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.map(record) : [];
}
