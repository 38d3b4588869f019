/** Reads what a service of a resolved compose file asks of the host; a key that is not known asks for everything. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import {
  bindOf,
  deviceAsks,
  groupAsks,
  listAsks,
  logDriverAsks,
  namespaceAsks,
  propagationAsks,
  securityOptAsks,
  usersContainers,
  type Bind,
  type ContainerClaims,
  type HostAsk,
} from "../container-policy.ts";
import {
  bytesOf,
  durationSecs,
  isSet,
  listOf,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
} from "./compose-values.ts";
import { readServicePort } from "./service-ports.ts";

/** Keys that stay within the container, whatever their value. */
const harmless = new Set([
  ...["attach", "build", "cap_drop", "command", "configs", "container_name", "cpu_count"],
  ...["cpu_percent", "cpu_period", "cpu_quota", "cpus", "cpuset", "depends_on", "dns", "dns_opt"],
  ...["dns_search", "domainname", "entrypoint", "environment", "expose", "extra_hosts", "healthcheck"],
  ...["hostname", "image", "init", "links", "mem_limit", "mem_reservation", "mem_swappiness"],
  ...["memswap_limit", "platform", "profiles", "pull_policy", "read_only", "restart", "secrets"],
  ...["stdin_open", "stop_signal", "tty", "user", "working_dir", "develop"],
]);

interface Draft {
  asks: HostAsk[];
  binds: Bind[];
  hostPorts: number[];
  excess: string[];
  /** The services of the project. */
  readonly services: ReadonlySet<string>;
}

/** For users' containers. */
const bounds = {
  containers: usersContainers,
  processes: 32_768,
  memoryFileBytes: 2 * 2 ** 30,
  /** Open files, locked memory and the like. */
  limit: 1_048_576,
  /** As many as whoever says nothing has: more would be taken from others, and from the daemon. */
  processorShares: 1_024,
  /** As for `stop.grace` of a manifest: so long a stop may take. */
  graceSecs: 3_600,
};

type Reader = (value: JsonValue, draft: Draft) => void;

const readers: Readonly<Record<string, Reader>> = {
  privileged: (value, { asks }) => {
    if (value !== "false") asks.push({ permission: "privileged", what: "runs privileged" });
  },
  network_mode: (value, draft) => {
    const mode = textOf(value);
    if (!["bridge", "default"].includes(mode)) sharedNetwork(value, draft);
    else draft.excess.push(`has the network mode "${mode}", the network of all: leave it out`);
  },
  pid: namespace("pid", []),
  ipc: namespace("ipc", ["none", "private", "shareable"]),
  uts: namespace("uts", []),
  userns_mode: namespace("userns", []),
  cgroup: namespace("cgroup", ["private"]),
  cgroup_parent: list("privileged", "joins the cgroup"),
  devices: (value, { asks }) => asks.push(...deviceAsks(listOf(value).map(deviceSource))),
  device_cgroup_rules: list("devices", "sets the device rule"),
  gpus: list("gpu", "uses the graphics processors"),
  deploy: readDeploy,
  cap_add: list("capabilities", "adds the capability"),
  group_add: (value, { asks }) => asks.push(...groupAsks(textsOf(value))),
  security_opt: (value, { asks }) => asks.push(...securityOptAsks(textsOf(value))),
  sysctls: (value, { asks }) =>
    asks.push(...listAsks(Object.keys(pairsOf(value)), "privileged", "sets the kernel parameter")),
  runtime: list("privileged", "runs under"),
  volumes_from: list("host_mounts", "mounts the volumes of"),
  external_links: list("host_network", "links to the container"),
  use_api_socket: (_value, { asks }) =>
    asks.push({ permission: "engine_socket", what: "uses the container engine" }),
  logging: (value, { asks }) => asks.push(...logDriverAsks(textOf(recordOf(value)["driver"]))),
  labels: (value, { asks }) => {
    const spoofed = Object.keys(pairsOf(value)).filter((name) => /^(svc|com\.docker\.compose)\./.test(name));
    asks.push(...listAsks(spoofed, "privileged", "sets the label"));
  },
  annotations: (value, { excess }) => {
    for (const key of Object.keys(pairsOf(value))) excess.push(`has the annotation "${key}" for the runtime`);
  },
  scale: atMost("containers", bounds.containers),
  pids_limit: atMost("processes", bounds.processes),
  cpu_shares: atMost("shares of the processors", bounds.processorShares),
  stop_grace_period: (value, { excess }) => {
    const text = textOf(value);
    if (!(durationSecs(text) <= bounds.graceSecs))
      excess.push(`takes ${text} to stop, more than ${bounds.graceSecs}s`);
  },
  shm_size: atMost("bytes of shared memory", bounds.memoryFileBytes),
  tmpfs: (value, { excess }) => {
    for (const entry of textsOf(value)) {
      // Of several the last one counts.
      for (const [, size = ""] of entry.matchAll(/[:,]size=([^,]*)/g)) {
        excess.push(...tooMuch("bytes of a file system in memory", size, bounds.memoryFileBytes));
      }
    }
  },
  ulimits: (value, { excess }) => {
    for (const [name, limit] of Object.entries(recordOf(value))) {
      for (const part of typeof limit === "object" ? Object.values(recordOf(limit)) : [limit]) {
        excess.push(...tooMuch(`as the limit "${name}"`, part, bounds.limit));
      }
    }
  },
  networks: readNetworks,
  volumes: (value, draft) => {
    for (const volume of listOf(value)) readVolume(volume, draft);
  },
  ports: (value, { hostPorts }) => {
    for (const port of listOf(value)) {
      // A range counts as its lowest port; 0 for any free one.
      hostPorts.push(Number.parseInt(readServicePort(port).published, 10) || 0);
    }
  },
};

const sharedNetwork = namespace("network", ["none"]);

/** @param services the services of the project: what they share among themselves stays within the app */
export function serviceClaims(
  name: string,
  service: JsonObject,
  services: ReadonlySet<string>,
): ContainerClaims {
  const draft: Draft = { asks: [], binds: [], hostPorts: [], excess: [], services };
  for (const [key, value] of Object.entries(service)) {
    if (harmless.has(key) || key.startsWith("x-") || !isSet(value)) continue;
    const read = Object.hasOwn(readers, key) ? readers[key] : undefined;
    if (read === undefined) draft.asks.push({ permission: "privileged", what: `sets "${key}"` });
    else read(value, draft);
  }
  const { asks, binds, hostPorts, excess } = draft;
  return { subject: `service "${name}"`, user: textOf(service["user"]), asks, binds, hostPorts, excess };
}

function atMost(what: string, most: number): Reader {
  return (value, { excess }) => excess.push(...tooMuch(what, value, most));
}

/** Less than nothing is without end, and so is what cannot be read. */
function tooMuch(what: string, value: JsonValue, most: number): string[] {
  const text = textOf(value);
  return bytesOf(value) <= most ? [] : [`wants ${text} ${what}, more than ${most}`];
}

function readDeploy(value: JsonValue, { asks, excess }: Draft): void {
  const { replicas = null } = recordOf(value);
  if (isSet(replicas)) excess.push(...tooMuch("containers", replicas, bounds.containers));
  for (const [part, resources] of Object.entries(recordOf(recordOf(value)["resources"]))) {
    for (const [resource, amount] of Object.entries(recordOf(resources))) {
      if (resource === "pids" && isSet(amount))
        excess.push(...tooMuch("processes", amount, bounds.processes));
      if (["cpus", "memory", "pids"].includes(resource) || !isSet(amount)) continue;
      const permission = resource === "devices" && areGpus(amount) ? "gpu" : "devices";
      asks.push({ permission, what: `has ${part} of ${resource}` });
    }
  }
}

/** The path on the host of `/dev/x:/dev/y:rw` or of its long form. */
function deviceSource(device: JsonValue): string {
  return typeof device === "string" ? (device.split(":")[0] ?? "") : textOf(recordOf(device)["source"]);
}

function areGpus(devices: JsonValue): boolean {
  return listOf(devices).every((device) => textsOf(recordOf(device)["capabilities"]).includes("gpu"));
}

function readNetworks(value: JsonValue, { asks }: Draft): void {
  const settings = Array.isArray(value) ? [] : Object.values(recordOf(value)).map(recordOf);
  for (const [key, item] of settings.flatMap((network) => Object.entries(network))) {
    const isPlain = ["aliases", "ipv4_address", "ipv6_address", "priority", "gw_priority"].includes(key);
    if (!isPlain && isSet(item))
      asks.push({ permission: "host_network", what: `sets "${key}" of a network` });
  }
}

const volumeName = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;
const plainModes = new Set(["", "ro", "rw", "z", "Z", "nocopy", "cached", "delegated", "consistent"]);

function readVolume(volume: JsonValue, draft: Draft): void {
  if (typeof volume === "string") readShortVolume(volume, draft);
  else readLongVolume(recordOf(volume), draft);
}

function readShortVolume(volume: string, { asks, binds }: Draft): void {
  const parts = volume.split(":");
  const [source = "", target, mode = ""] = parts;
  // A path in the container alone: a volume without a name.
  if (target === undefined && source.startsWith("/")) return;
  const modes = mode.split(",");
  for (const word of modes) {
    if (!plainModes.has(word)) asks.push(...propagationAsks(word));
  }
  if (parts.length > 3) asks.push({ permission: "host_mounts", what: `mounts "${volume}"` });
  if (!volumeName.test(source)) binds.push(bindOf(source, modes.includes("ro")));
}

function readLongVolume(volume: JsonObject, { asks, binds, excess }: Draft): void {
  const { type, source, bind, read_only: readOnly } = volume;
  const known = ["type", "source", "target", "read_only", "bind", "volume", "tmpfs", "consistency"];
  const odd = Object.keys(volume).filter((key) => !known.includes(key) && !key.startsWith("x-"));
  asks.push(...listAsks(odd, "host_mounts", "mounts something with"));
  const path = textOf(source);
  switch (type) {
    case "tmpfs": {
      const { size = null } = recordOf(volume["tmpfs"]);
      if (isSet(size))
        excess.push(...tooMuch("bytes of a file system in memory", size, bounds.memoryFileBytes));
      return;
    }
    case "volume":
      if (path !== "" && !volumeName.test(path)) binds.push(bindOf(path, readOnly === true));
      return;
    case "bind":
      asks.push(...propagationAsks(textOf(recordOf(bind)["propagation"])));
      binds.push(bindOf(path, readOnly === true));
      return;
    default:
      asks.push({ permission: "host_mounts", what: `mounts "${path}" as ${textOf(type)}` });
  }
}

function list(permission: HostAsk["permission"], verb: string): Reader {
  return (value, { asks }) => asks.push(...listAsks(textsOf(value), permission, verb));
}

function namespace(kind: Parameters<typeof namespaceAsks>[0], own: readonly string[]): Reader {
  return (value, { asks, services }) => {
    const shared = [...services].map((service) => `service:${service}`);
    asks.push(...namespaceAsks(kind, textOf(value), new Set([...own, ...shared])));
  };
}
