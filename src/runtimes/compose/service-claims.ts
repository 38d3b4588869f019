/**
 * Determines what a service of a resolved compose file requests from the host. A key outside the table below counts as privileged,
 * so `container-policy.ts` rejects it unless the package has that permission.
 */
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { ContainerClaims } from "../containers/container-policy.ts";
import {
  capabilityRequirements,
  deviceRequirements,
  groupRequirements,
  listRequirements,
  securityOptRequirements,
} from "../containers/host-requirements.ts";
import { excessOfKernelParameters, kernelParameterRequirements } from "../containers/kernel-parameters.ts";
import {
  excessOfExposed,
  excessOfInMemory,
  excessOfLimit,
  excessOfMounts,
} from "../containers/user-bounds.ts";
import { labelRequirements, unknownKeyRequirements, type Draft, type Reader } from "./claims-draft.ts";
import { durationSecs, isSet, listOf, pairsOf, recordOf, textOf, textsOf } from "./compose-values.ts";
import { copiesOf } from "./project-networks.ts";
import { countMounts } from "./project-size.ts";
import {
  atMost,
  deviceSource,
  list,
  namespace,
  oomScoreRequirements,
  readDeploy,
  readHealth,
  readHooks,
  readLogging,
  readNetworks,
  readProcesses,
  serviceBounds,
} from "./service-key-claims.ts";
import {
  readFiles,
  readVolume,
  requireOneMountEach,
  requireOneSharedMountEach,
  requireSharedFilesApart,
} from "./service-mount-claims.ts";
import { inMemoryWords, sharedMounts, volumesService } from "./service-mounts.ts";
import { countPorts, readServicePort } from "./service-ports.ts";

/** A key of a service: its effect in compose, and how its value is checked. */
interface ServiceKey {
  /** Its effect in `up` of compose v2 (pkg/compose of github.com/docker/compose v2.40, mostly create.go). */
  readonly up: string;
  /** Absent: no value affects anything outside the container. */
  readonly read?: Reader;
}

/** Every accepted key of a service; other keys of compose v2 are rejected like unknown ones. */
const keys: Readonly<Record<string, ServiceKey>> = {
  annotations: {
    up: "sets HostConfig.Annotations, which the engine hands to the OCI runtime and its hooks",
    // As root, crun and Kata Containers run programs and read files of the host that annotations name.
    read: (value, { excess }) => {
      for (const key of Object.keys(pairsOf(value)))
        excess.push(`has the annotation "${key}" for the runtime`);
    },
  },
  attach: { up: "chooses whose output `up` prints; nothing with --detach" },
  blkio_config: {
    up: "sets HostConfig.BlkioWeight and BlkioDevice…: limits of the container, and its weight beside other containers",
    read: (value, { requirements, excess }) => {
      requirements.push(...unknownKeyRequirements(recordOf(value), blockKeys));
      excess.push('sets "blkio_config", for which the engine opens devices of the host as root');
    },
  },
  build: { up: "nothing with --no-build; svc builds by itself and removes the key" },
  cap_add: {
    up: "sets HostConfig.CapAdd",
    read: (value, { requirements }) => requirements.push(...capabilityRequirements(textsOf(value))),
  },
  cap_drop: { up: "sets HostConfig.CapDrop, which only takes capabilities away" },
  cgroup: { up: "sets HostConfig.CgroupnsMode", read: namespace("cgroup", ["private"]) },
  cgroup_parent: {
    up: "sets HostConfig.CgroupParent: the control group of the host that the container is put below",
    read: list("privileged", "joins the cgroup"),
  },
  command: { up: "sets Config.Cmd, which runs inside" },
  configs: {
    up: "mounts `file` read-only, and copies `content` as root through the container's mounts, with `uid`, `gid` and `mode`",
    read: readFiles("config"),
  },
  container_name: { up: "names the container; svc makes it an alias instead" },
  cpu_count: { up: "sets HostConfig.CpuCount, which engines on Windows read" },
  cpu_percent: { up: "sets HostConfig.CpuPercent, which engines on Windows read" },
  cpu_period: { up: "sets HostConfig.CpuPeriod, a limit of the container" },
  cpu_quota: { up: "sets HostConfig.CpuQuota, a limit of the container" },
  cpu_shares: {
    up: "sets HostConfig.CpuShares, its weight beside other containers",
    read: atMost("CPU shares", serviceBounds.cpuShares),
  },
  cpus: { up: "sets HostConfig.NanoCpus, a limit of the container" },
  cpuset: { up: "sets HostConfig.CpusetCpus, which only takes CPUs away" },
  depends_on: {
    up: "orders the start, waits for conditions, and writes the names into a label of compose's own",
    read: (value, { requirements }) => {
      const parts = Object.values(Array.isArray(value) ? {} : recordOf(value)).map(recordOf);
      requirements.push(
        ...parts.flatMap((part) => unknownKeyRequirements(part, ["condition", "restart", "required"])),
      );
    },
  },
  deploy: {
    up: "sets limits, reservations, copies and the restart policy; ignores what is for swarms",
    read: readDeploy,
  },
  develop: { up: "nothing without --watch; svc removes the key" },
  device_cgroup_rules: {
    up: "sets HostConfig.DeviceCgroupRules",
    read: list("devices", "sets the device rule"),
  },
  devices: {
    up: "sets HostConfig.Devices, or DeviceRequests for names of CDI",
    read: (value, { requirements }) =>
      requirements.push(...deviceRequirements(listOf(value).map(deviceSource))),
  },
  dns: { up: "sets HostConfig.Dns, which the engine asks from the container's network namespace" },
  dns_opt: { up: "sets HostConfig.DnsOptions, lines of the container's own resolv.conf" },
  dns_search: { up: "sets HostConfig.DnsSearch, lines of the container's own resolv.conf" },
  domainname: { up: "sets Config.Domainname in the container's own UTS namespace" },
  entrypoint: { up: "sets Config.Entrypoint, which runs inside" },
  environment: {
    up: "sets Config.Env; a name without a value takes that of the compose process; svc removes it for users",
  },
  expose: {
    up: "lists ports in Config.ExposedPorts, each port of a range by itself; publishes none",
    read: (value, { excess }) => excess.push(...excessOfExposed(textsOf(value))),
  },
  external_links: {
    up: "sets HostConfig.Links to containers of any project",
    read: list("host_network", "links to the container"),
  },
  extra_hosts: {
    up: "adds lines to the container's own /etc/hosts; host-gateway is an address that it reaches anyhow",
  },
  gpus: { up: "sets HostConfig.DeviceRequests", read: list("gpu", "uses the graphics processors") },
  group_add: {
    up: "sets HostConfig.GroupAdd",
    read: (value, { requirements }) => requirements.push(...groupRequirements(textsOf(value))),
  },
  healthcheck: {
    up: "sets Config.Healthcheck: the engine runs it inside as the container's user, and takes what is missing from the image",
    read: readHealth,
  },
  hostname: { up: "sets Config.Hostname in the container's own UTS namespace" },
  image: { up: "names the image, which svc has pulled; compose pulls one that is missing" },
  init: { up: "sets HostConfig.Init: the engine's own init runs inside" },
  ipc: { up: "sets HostConfig.IpcMode", read: namespace("ipc", ["none", "private", "shareable"]) },
  labels: {
    up: "sets Config.Labels; those of compose's own come last",
    read: (value, { requirements }) => requirements.push(...labelRequirements(value)),
  },
  links: { up: "sets HostConfig.Links to containers of the same project" },
  logging: {
    up: "sets HostConfig.LogConfig, unread: the engine's drivers do as the options say",
    read: readLogging,
  },
  mac_address: {
    up: "sets MacAddress of the container's interface in its main network, which belongs to the project",
  },
  mem_limit: { up: "sets HostConfig.Memory, a limit of the container" },
  mem_reservation: { up: "sets HostConfig.MemoryReservation, a limit of the container" },
  mem_swappiness: { up: "sets HostConfig.MemorySwappiness of the container's control group" },
  memswap_limit: { up: "sets HostConfig.MemorySwap, a limit of the container" },
  network_mode: {
    up: "sets HostConfig.NetworkMode",
    read: (value, draft) => {
      const mode = textOf(value);
      if (!["bridge", "default"].includes(mode)) sharedNetwork(value, draft);
      else draft.excess.push(`has the network mode "${mode}", a network that all containers share`);
    },
  },
  networks: {
    up: "joins networks of the project; `driver_opts` and addresses reach their drivers",
    read: readNetworks,
  },
  oom_score_adj: {
    up: "sets HostConfig.OomScoreAdj; a positive value makes the kernel choose its processes first",
    read: (value, { requirements }) => requirements.push(...oomScoreRequirements(textOf(value))),
  },
  pid: { up: "sets HostConfig.PidMode", read: namespace("pid", []) },
  pids_limit: { up: "sets HostConfig.PidsLimit; 0 and -1 mean unlimited", read: readProcesses },
  platform: { up: "asks the engine for the image of that platform" },
  ports: {
    up: "sets HostConfig.PortBindings: the engine listens on them, as root",
    read: (value, { requirements, hostPorts }) => {
      for (const port of listOf(value)) {
        hostPorts.push(readServicePort(port).published);
        if (typeof port === "object") requirements.push(...unknownKeyRequirements(recordOf(port), portKeys));
      }
    },
  },
  post_start: {
    up: "runs commands in the started container by exec, as the container's user unless `user` is set",
    read: readHooks,
  },
  privileged: {
    up: "sets HostConfig.Privileged",
    read: (value, { requirements }) => {
      if (value !== "false") requirements.push({ permission: "privileged", what: "runs privileged" });
    },
  },
  profiles: {
    up: "leaves the service out unless one is chosen; svc has chosen by then, and removes the key",
  },
  pull_policy: {
    up: 'chooses when to pull; svc pulls accordingly, removes the key, and sets "never" for users',
  },
  read_only: { up: "sets HostConfig.ReadonlyRootfs, which only takes something away" },
  restart: { up: 'sets HostConfig.RestartPolicy; svc sets "no"' },
  runtime: {
    up: "sets HostConfig.Runtime: a program of the host, by its name",
    read: list("privileged", "runs under"),
  },
  scale: { up: "makes so many containers", read: atMost("containers", serviceBounds.containers) },
  secrets: {
    up: "mounts `file` read-only, and copies the value of `environment` as root through the container's mounts, with `uid`, `gid` and `mode`",
    read: readFiles("secret"),
  },
  security_opt: {
    up: "sets HostConfig.SecurityOpt; reads seccomp profiles from the host, as root",
    read: (value, { requirements }) => requirements.push(...securityOptRequirements(textsOf(value))),
  },
  shm_size: {
    up: "sets HostConfig.ShmSize, the size of /dev/shm",
    read: atMost("bytes of shared memory", serviceBounds.sharedMemoryBytes),
  },
  stdin_open: { up: "sets Config.OpenStdin" },
  stop_grace_period: {
    up: "sets Config.StopTimeout: the engine waits so long at a stop",
    read: (value, { excess }) => {
      const text = textOf(value);
      if (!(durationSecs(text) <= serviceBounds.graceSecs))
        excess.push(`takes ${text} to stop, more than ${serviceBounds.graceSecs}s`);
    },
  },
  stop_signal: { up: "sets Config.StopSignal, which the engine sends to the container's first process" },
  sysctls: {
    up: "sets HostConfig.Sysctls, which the runtime writes as root in the container's namespaces",
    read: (value, { requirements, excess }) => {
      const parameters = pairsOf(value);
      requirements.push(...kernelParameterRequirements(Object.keys(parameters)));
      excess.push(...excessOfKernelParameters(parameters));
    },
  },
  tmpfs: {
    up: "sets HostConfig.Tmpfs: the engine mounts it inside with options that it does not bound",
    read: (_value, { excess, service }) => excess.push(...excessOfInMemory(inMemoryWords(service))),
  },
  tty: { up: "sets Config.Tty" },
  ulimits: {
    up: "sets HostConfig.Ulimits: the engine raises limits as root",
    read: (value, { excess }) => {
      for (const [name, limit] of Object.entries(recordOf(value))) {
        const values = typeof limit === "object" ? Object.values(recordOf(limit)) : [limit];
        excess.push(...excessOfLimit(name, values.map(textOf)));
      }
    },
  },
  use_api_socket: {
    up: "mounts the engine's socket and copies credentials into the container",
    read: (_value, { requirements }) =>
      requirements.push({ permission: "engine_socket", what: "uses the container engine" }),
  },
  user: { up: "sets Config.User; the policy compares it with the owner" },
  userns_mode: { up: "sets HostConfig.UsernsMode", read: namespace("userns", []) },
  uts: { up: "sets HostConfig.UTSMode", read: namespace("uts", []) },
  volumes: {
    up: "sets HostConfig.Binds and Mounts: the engine follows sources as root, makes missing ones, and labels files for SELinux",
    read: (value, draft) => {
      for (const volume of listOf(value)) readVolume(volume, draft);
      requireOneMountEach(draft);
      if (!isSet(draft.service["tmpfs"]))
        draft.excess.push(...excessOfInMemory(inMemoryWords(draft.service)));
    },
  },
  volumes_from: {
    up: "sets HostConfig.VolumesFrom to containers of the project, without `:ro`, or to any container after `container:`",
    read: (value, draft) => {
      const others = textsOf(value).filter((entry) => !Object.hasOwn(draft.services, volumesService(entry)));
      draft.requirements.push(...listRequirements(others, "host_mounts", "mounts the volumes of"));
      requireOneSharedMountEach(draft);
      requireSharedFilesApart(draft);
    },
  },
  working_dir: { up: "sets Config.WorkingDir; the engine makes it inside where it is missing" },
};

export const serviceKeys: readonly string[] = Object.keys(keys);

const blockKeys = [
  ...["weight", "weight_device", "device_read_bps", "device_read_iops"],
  ...["device_write_bps", "device_write_iops"],
];

const portKeys = ["mode", "target", "published", "protocol", "host_ip", "name", "app_protocol"];

const sharedNetwork = namespace("network", ["none"]);

/** @param services services of the project: what they share with each other stays within the app */
export function serviceClaims(name: string, service: JsonObject, services: JsonObject): ContainerClaims {
  const draft: Draft = {
    requirements: [],
    binds: [],
    hostPorts: [],
    fileOwners: [],
    excess: [],
    services,
    service,
  };
  draft.requirements.push(...unknownKeyRequirements(service, Object.keys(keys)));
  for (const [key, { read }] of Object.entries(keys)) {
    const value = service[key];
    if (value !== undefined && isSet(value)) read?.(value, draft);
  }
  const { requirements, binds, hostPorts, fileOwners, excess } = draft;
  excess.push(...excessOfMounts(countMounts(service) + sharedMounts(service, services).length, "mounts"));
  const ports = listOf(service["ports"]).reduce<number>(
    (sum, port) => sum + countPorts(readServicePort(port)),
    0,
  );
  const copies = copiesOf(service);
  return {
    ...{ subject: `service "${name}"`, user: textOf(service["user"]) },
    ...{ requirements, binds, hostPorts, fileOwners, excess },
    uses: {
      containers: copies,
      ports: ports * copies,
      descriptionBytes: descriptionBytes(service) * copies,
    },
  };
}
