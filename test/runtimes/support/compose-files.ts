/** Compose files above a regular user's rights, and the policy's verdict on compose's output for a file. */
import type { JsonObject, JsonValue } from "../../../src/lib/json.ts";
import { runnableProject } from "../../../src/runtimes/compose/compose-document.ts";
import { projectClaims } from "../../../src/runtimes/compose/project-claims.ts";
import { nobody, type Permission, type PolicyDirectory } from "./policy-app.ts";

type Place = Pick<PolicyDirectory, "dir">;

/** The document that svc would run after compose resolved a file. */
export function runnableDocument(
  resolved: JsonObject,
  owner: string | undefined,
  isClassic = false,
): JsonObject {
  return runnableProject(resolved, {
    ...{ file: "compose.yaml", isClassic, profiles: ["chosen"], stopGraceMs: 10_000, owner },
    restart: { policy: "never", delayMs: 0, maxDelayMs: 0, maxAttempts: 0, resetAfterMs: 0 },
    absent: new Set(["/etc/timezone"]),
    builtTag: (service) => `svc.local/web:${service}`,
    withTag: (image) => image,
  }).document;
}

/** The verdict for a regular user. */
export function policyVerdict(
  place: PolicyDirectory,
  resolved: JsonObject,
  isClassic: boolean,
): Promise<string> {
  const document = runnableDocument(resolved, `${nobody}:${nobody}`, isClassic);
  return place.verdict(projectClaims(document, "svc-web"), nobody, []);
}

export const service = (more: JsonObject, rest: JsonObject = {}): JsonObject => ({
  services: { web: { image: "svc/web:1", ...more }, db: { image: "svc/db:1" } },
  ...rest,
});
export const volume = (more: JsonObject): JsonObject =>
  service({ volumes: ["data:/data"] }, { volumes: { data: more } });
export const network = (more: JsonObject): JsonObject =>
  service({ networks: ["lan"] }, { networks: { lan: more } });

/** Keys that need a permission, and which. */
export function askingFiles(place: Place): [name: string, permission: Permission, document: JsonObject][] {
  return [
    ["privileged", "privileged", service({ privileged: true })],
    ["privileged as text", "privileged", service({ privileged: "true" })],
    ["host network", "host_network", service({ network_mode: "host" })],
    ["another container's network", "host_network", service({ network_mode: "container:other" })],
    ["a stranger service's network", "host_network", service({ network_mode: "service:stranger" })],
    ["host pids", "host_pid", service({ pid: "host" })],
    ["another container's pids", "host_pid", service({ pid: "container:other" })],
    ["host ipc", "host_ipc", service({ ipc: "host" })],
    ["another container's ipc", "host_ipc", service({ ipc: "container:other" })],
    ["host name of the host", "privileged", service({ uts: "host" })],
    ["no user namespace", "privileged", service({ userns_mode: "host" })],
    ["control groups of the host", "privileged", service({ cgroup: "host" })],
    ["another cgroup parent", "privileged", service({ cgroup_parent: "system.slice" })],
    ["a device", "devices", service({ devices: ["/dev/sda:/dev/sda"] })],
    ["a device as an object", "devices", service({ devices: [{ source: "/dev/sda", target: "/dev/sda" }] })],
    ["a device rule", "devices", service({ device_cgroup_rules: ["a *:* rwm"] })],
    ["all GPUs", "gpu", service({ gpus: "all" })],
    ["a graphics processor", "gpu", service({ devices: ["/dev/dri:/dev/dri"] })],
    [
      "a graphics processor as an object",
      "gpu",
      service({ devices: [{ source: "/dev/dri/card0", target: "/x" }] }),
    ],
    ["a disk beside the graphics", "devices", service({ devices: ["/dev/dri/../sda:/dev/dri/card0"] })],
    [
      "reserved graphics beside others",
      "devices",
      service({
        deploy: {
          resources: { reservations: { devices: [{ capabilities: ["gpu"] }, { capabilities: ["tpu"] }] } },
        },
      }),
    ],
    [
      "reserved graphics processors",
      "gpu",
      service({ deploy: { resources: { reservations: { devices: [{ capabilities: ["gpu"] }] } } } }),
    ],
    ["a capability", "capabilities", service({ cap_add: ["SYS_ADMIN"] })],
    ["all capabilities", "capabilities", service({ cap_add: ["ALL"] })],
    ["no AppArmor", "privileged", service({ security_opt: ["apparmor:unconfined"] })],
    ["no seccomp", "privileged", service({ security_opt: ["seccomp=unconfined"] })],
    ["its own seccomp profile", "privileged", service({ security_opt: ["seccomp:./profile.json"] })],
    ["no SELinux", "host_mounts", service({ security_opt: ["label:disable"] })],
    ["another SELinux type", "privileged", service({ security_opt: ["label:type:spc_t"] })],
    ["the kernel's paths", "privileged", service({ security_opt: ["systempaths=unconfined"] })],
    ["new privileges", "privileged", service({ security_opt: ["no-new-privileges:false"] })],
    ["kernel parameters of the host", "privileged", service({ sysctls: { "kernel.panic": 1 } })],
    ["kernel parameters as a list", "privileged", service({ sysctls: ["vm.overcommit_memory=1"] })],
    [
      "a kernel parameter that loads a module",
      "privileged",
      service({ sysctls: { "net.ipv4.tcp_congestion_control": "bbr" } }),
    ],
    [
      "a kernel parameter of all connections of the host",
      "privileged",
      service({ sysctls: { "net.netfilter.nf_conntrack_max": 1 } }),
    ],
    [
      "a path in the name of a kernel parameter",
      "privileged",
      service({ sysctls: { "net.ipv4.conf./../../../kernel.panic": 1 } }),
    ],
    ["another runtime", "privileged", service({ runtime: "sysbox" })],
    ["a group of the image", "privileged", service({ group_add: ["docker"] })],
    ["a group of the host", "groups", service({ group_add: [44] })],
    ["the OOM killer off", "privileged", service({ oom_kill_disable: true })],
    ["a better OOM score", "privileged", service({ oom_score_adj: -1000 })],
    ["storage options", "privileged", service({ storage_opt: { size: "100G" } })],
    [
      "privileged commands after the start",
      "privileged",
      service({ post_start: [{ command: "id" }, { command: "id", privileged: true }] }),
    ],
    [
      "an unknown key of a command after the start",
      "privileged",
      service({ post_start: [{ command: "id", host_access: true }] }),
    ],
    ["a program of the host", "privileged", service({ provider: { type: "sh" } })],
    ["an unknown key", "privileged", service({ host_access: true })],
    ["an unknown key of a deployment", "privileged", service({ deploy: { host_access: true } })],
    ["an unknown key of resources", "privileged", service({ deploy: { resources: { host: true } } })],
    ["an unknown limit", "devices", service({ deploy: { resources: { limits: { host_access: "1" } } } })],
    ["an unknown key of a health check", "privileged", service({ healthcheck: { host_access: true } })],
    ["an unknown health check", "privileged", service({ healthcheck: { test: ["HOST", "id"] } })],
    ["an unknown key of a log", "privileged", service({ logging: { host_access: true } })],
    [
      "an unknown key of a dependency",
      "privileged",
      service({ depends_on: { db: { condition: "service_started", host_access: true } } }),
    ],
    ["an unknown key of a port", "privileged", service({ ports: [{ target: 80, host_access: true }] })],
    [
      "an unknown key of a config in a service",
      "privileged",
      service({ configs: [{ source: "a", host_access: true }] }),
    ],
    [
      "an unknown key of a secret in a service",
      "privileged",
      service({ secrets: [{ source: "a", host_access: true }] }),
    ],
    [
      "an unknown key of a network in a service",
      "host_network",
      service({ networks: { default: { host_access: true } } }),
    ],
    ["an unknown key of a network", "host_network", network({ host_access: true })],
    ["an unknown key of a volume", "host_mounts", volume({ host_access: true })],
    [
      "an unknown key of a config",
      "host_mounts",
      service({ configs: ["a"] }, { configs: { a: { host_access: true } } }),
    ],
    [
      "an unknown key of a secret",
      "host_mounts",
      service({ secrets: ["a"] }, { secrets: { a: { host_access: true } } }),
    ],
    [
      "an unknown key of a bind",
      "host_mounts",
      service({
        volumes: [{ type: "bind", source: `${place.dir}/data`, target: "/x", bind: { host_access: true } }],
      }),
    ],
    [
      "an unknown key of a mounted volume",
      "host_mounts",
      service({ volumes: [{ type: "volume", target: "/x", volume: { host_access: true } }] }),
    ],
    [
      "labels of a volume without a name",
      "host_mounts",
      service({ volumes: [{ type: "volume", target: "/x", volume: { labels: { "svc.app": "a" } } }] }),
    ],
    [
      "an unknown key of memory",
      "host_mounts",
      service({ volumes: [{ type: "tmpfs", target: "/x", tmpfs: { host_access: true } }] }),
    ],
    [
      "options of a bind for a volume",
      "host_mounts",
      service({ volumes: [{ type: "volume", target: "/x", bind: { create_host_path: true } }] }),
    ],
    [
      "labels of SELinux for a path that is called a volume",
      "host_mounts",
      service({ volumes: [{ type: "volume", source: "/etc", target: "/x", bind: { selinux: "z" } }] }),
    ],
    ["svc's own labels on a volume", "privileged", volume({ labels: { "svc.app": "other" } })],
    ["svc's own labels on a network", "privileged", network({ labels: { "svc.app": "other" } })],
    [
      "a config with the set-user-ID bit",
      "privileged",
      service({ configs: [{ source: "a", mode: "04755" }] }),
    ],
    [
      "a config with the set-group-ID bit",
      "privileged",
      service({ configs: [{ source: "a", mode: 0o2755 }] }),
    ],
    ["a secret with the sticky bit", "privileged", service({ secrets: [{ source: "a", mode: "1444" }] })],
    ["a mode that nobody can read", "privileged", service({ secrets: [{ source: "a", mode: "u+s" }] })],
    ["an image of another platform's isolation", "privileged", service({ isolation: "hyperv" })],
    ["credentials of Windows", "privileged", service({ credential_spec: { file: "x" } })],
    ["files of labels", "privileged", service({ label_file: ["x"] })],
    ["files of variables", "privileged", service({ env_file: ["x"] })],
    ["commands before the stop", "privileged", service({ pre_stop: [{ command: "id" }] })],
    ["models of a service", "privileged", service({ models: ["x"] })],
    ["real-time CPU", "privileged", service({ cpu_rt_runtime: "100ms", cpu_rt_period: "1s" })],
    [
      "the name of an interface",
      "host_network",
      service({ networks: { default: { interface_name: "eth9" } } }),
    ],
    ["an unknown section", "privileged", service({}, { hosts: { a: {} } })],
    ["models", "privileged", service({ models: ["a"] }, { models: { a: { model: "x" } } })],
    ["the log of the host", "privileged", service({ logging: { driver: "journald" } })],
    ["svc's own labels", "privileged", service({ labels: { "svc.app": "other" } })],
    ["compose's own labels", "privileged", service({ labels: ["com.docker.compose.project=svc-other"] })],
    ["labels of swarm services", "privileged", service({ labels: { "com.docker.swarm.service.name": "x" } })],
    ["labels of stacks", "privileged", service({ labels: { "com.docker.stack.namespace": "x" } })],
    ["the engine by a key", "engine_socket", service({ use_api_socket: true })],
    ["a link to another's container", "host_network", service({ external_links: ["other:db"] })],
    ["another container's volumes", "host_mounts", service({ volumes_from: ["container:other"] })],
    ["volumes of a service outside the project", "host_mounts", service({ volumes_from: ["stranger"] })],
    [
      "another container's volumes, named like a mode",
      "host_mounts",
      {
        services: {
          web: { image: "a", volumes_from: ["container:ro"] },
          container: { image: "a" },
        },
      },
    ],
    ["a service's volumes in an unknown mode", "host_mounts", service({ volumes_from: ["db:z"] })],
    ["another's volume", "host_mounts", volume({ external: true })],
    ["another's volume by the old key", "host_mounts", volume({ external: { name: "other_data" } })],
    ["another's volume by its name", "host_mounts", volume({ name: "svc-other_data" })],
    [
      "a volume that is a bind",
      "host_mounts",
      volume({ driver_opts: { type: "none", o: "bind", device: "/" } }),
    ],
    [
      "a directory of the host as a volume in memory",
      "host_mounts",
      volume({ driver_opts: { type: "tmpfs", o: "size=1m,bind", device: "/" } }),
    ],
    ["a volume from the network", "host_mounts", volume({ driver: "local", driver_opts: { type: "nfs" } })],
    ["a volume driver", "host_mounts", volume({ driver: "rexray" })],
    ["another's network", "networks", network({ external: true })],
    ["another's network by the old key", "networks", network({ external: { name: "proxy" } })],
    ["the host's network as another's", "host_network", network({ external: true, name: "host" })],
    ["another's network by its name", "host_network", network({ name: "bridge" })],
    ["the host's network as a driver", "host_network", network({ driver: "host" })],
    ["macvlan", "host_network", network({ driver: "macvlan", driver_opts: { parent: "eth0" } })],
    [
      "a bridge of the host",
      "host_network",
      network({ driver_opts: { "com.docker.network.bridge.name": "br0" } }),
    ],
    ["a public subnet", "host_network", network({ ipam: { config: [{ subnet: "8.8.8.0/24" }] } })],
    [
      "the subnet of link-local addresses",
      "host_network",
      network({ ipam: { config: [{ subnet: "169.254.0.0/16" }] } }),
    ],
    ["a public subnet of IPv6", "host_network", network({ ipam: { config: [{ subnet: "2001:db8::/64" }] } })],
    ["all of IPv6 as a subnet", "host_network", network({ ipam: { config: [{ subnet: "fd00::/0" }] } })],
    ["a driver of addresses", "host_network", network({ ipam: { driver: "dhcp" } })],
    ["options of addresses", "host_network", network({ ipam: { options: { a: "b" } } })],
    [
      "an unknown key of an address range",
      "host_network",
      network({ ipam: { config: [{ subnet: "10.201.0.0/24", host_access: true }] } }),
    ],
    [
      "options of a network in a service",
      "host_network",
      service({ networks: { default: { driver_opts: { a: "b" } } } }),
    ],
    [
      "a secret of the host",
      "host_mounts",
      service({ secrets: ["a"] }, { secrets: { a: { file: "/etc/shadow" } } }),
    ],
    [
      "a config of the host",
      "host_mounts",
      service({ configs: ["a"] }, { configs: { a: { file: "/etc/passwd" } } }),
    ],
    ["another's secret", "host_mounts", service({ secrets: ["a"] }, { secrets: { a: { external: true } } })],
    [
      "a secret of the daemon's environment",
      "host_mounts",
      service({ secrets: ["a"] }, { secrets: { a: { environment: "HOME" } } }),
    ],
    ["/etc", "host_mounts", service({ volumes: ["/etc:/x"] })],
    ["/etc to read", "host_mounts", service({ volumes: ["/etc:/x:ro"] })],
    [
      "/etc as an object",
      "host_mounts",
      service({ volumes: [{ type: "bind", source: "/etc", target: "/x" }] }),
    ],
    [
      "/etc mounted over a volume",
      "host_mounts",
      service({ volumes: [{ type: "volume", source: "/etc", target: "/x" }] }),
    ],
    [
      "/etc behind the app's directory",
      "host_mounts",
      service({ volumes: [`${place.dir}/../../../etc:/x`] }),
    ],
    ["a directory with the same beginning", "host_mounts", service({ volumes: [`${place.dir}-evil:/x`] })],
    [
      "a mount of an unknown type",
      "host_mounts",
      service({ volumes: [{ type: "cluster", source: "a", target: "/x" }] }),
    ],
    [
      "a mount of an image",
      "host_mounts",
      service({ volumes: [{ type: "image", source: "a", target: "/x" }] }),
    ],
    [
      "a mount with an unknown key",
      "host_mounts",
      service({ volumes: [{ type: "tmpfs", target: "/x", host: "/" }] }),
    ],
    ["slave mounts", "host_mounts", service({ volumes: [`${place.dir}/data:/x:rslave`] })],
    [
      "shared mounts",
      "host_mounts",
      service({
        volumes: [
          { type: "bind", source: `${place.dir}/data`, target: "/x", bind: { propagation: "shared" } },
        ],
      }),
    ],
    [
      "the engine's socket",
      "engine_socket",
      service({ volumes: ["/var/run/docker.sock:/var/run/docker.sock"] }),
    ],
    [
      "the engine's socket with dots",
      "engine_socket",
      service({ volumes: ["/run//x/../docker.sock:/s:ro"] }),
    ],
    ["the directory of the engine's socket", "engine_socket", service({ volumes: ["/run:/x:ro"] })],
    ["a home that nobody resolved", "engine_socket", service({ volumes: ["~/x:/x"] })],
    ["everything", "engine_socket", service({ volumes: ["/:/host:ro"] })],
  ];
}

/** Files that exceed a user's limits. */
export function greedyFiles(place: Place): [name: string, document: JsonObject][] {
  return [
    ["time to stop", service({ stop_grace_period: "24h0m0s" })],
    ["time to stop in minutes", service({ stop_grace_period: "61m" })],
    ["time to stop in microseconds", service({ stop_grace_period: "3600000001us" })],
    ["time to stop that nobody can read", service({ stop_grace_period: "1y" })],
    ["annotations", service({ annotations: { "run.oci.handler": "krun" } })],
    ["annotations as a list", service({ annotations: ["io.kubernetes.cri-o.Devices=/dev/sda"] })],
    ["shared memory", service({ shm_size: "64g" })],
    ["shared memory in bytes", service({ shm_size: "68719476736" })],
    ["shared memory as a number", service({ shm_size: 68_719_476_736 })],
    ["memory as a file system", service({ tmpfs: ["/x:mode=755,size=64g"] })],
    [
      "memory as a volume of the project",
      volume({ driver_opts: { type: "tmpfs", device: "tmpfs", o: "size=64m,uid=1000" } }),
    ],
    [
      "limits on devices of the host",
      service({ blkio_config: { weight: 300, device_read_bps: [{ path: "/dev/sda", rate: "1mb" }] } }),
    ],
    ["memory as a file system, said twice", service({ tmpfs: ["/x:size=1m,size=64g"] })],
    ["memory as one file system", service({ tmpfs: "/x:size=50%" })],
    [
      "memory as a volume",
      service({ volumes: [{ type: "tmpfs", target: "/x", tmpfs: { size: 68_719_476_736 } }] }),
    ],
    ["processes without end", service({ pids_limit: -1 })],
    ["many processes", service({ pids_limit: 4_000_000 })],
    ["more of the processors than others", service({ cpu_shares: 1_025 })],
    ["open files", service({ ulimits: { nofile: 1_073_741_816 } })],
    ["locked memory", service({ ulimits: { memlock: { soft: -1, hard: -1 } } })],
    ["more open files than the host has", service({ ulimits: { nofile: { soft: 1024, hard: -1 } } })],
    ["a real-time priority", service({ ulimits: { rtprio: 99 } })],
    ["a better priority", service({ ulimits: { nice: 40 } })],
    ["pending signals", service({ ulimits: { sigpending: 1 } })],
    ["an unknown limit", service({ ulimits: { host: 1 } })],
    ["no limit of processes as text", service({ pids_limit: "0" })],
    ["no limit of processes of a deployment", service({ deploy: { resources: { limits: { pids: "0" } } } })],
    ["a log without end", service({ logging: { options: { "max-size": "500g" } } })],
    ["a log of many files", service({ logging: { options: { "max-size": "10m", "max-file": "51" } } })],
    [
      "a log of files without end",
      service({ logging: { options: { "max-size": "10m", "max-file": "-1" } } }),
    ],
    [
      "a log of many files of the default size",
      service({ logging: { driver: "local", options: { "max-file": "26" } } }),
    ],
    ["a log of many small files", service({ logging: { options: { "max-size": "4k", "max-file": "101" } } })],
    ["a log of tiny files", service({ logging: { options: { "max-size": "4095" } } })],
    ["a log whose size nobody can read", service({ logging: { options: { "max-size": "1e9m" } } })],
    ["a log of terabytes", service({ logging: { options: { "max-size": "1t" } } })],
    [
      "a buffer of its log in the engine",
      service({ logging: { options: { mode: "non-blocking", "max-buffer-size": "500m" } } }),
    ],
    ["a buffer that nobody can read", service({ logging: { options: { "max-buffer-size": "1e9" } } })],
    ["labels in its log", service({ logging: { options: { labels: "svc.app" } } })],
    ["variables in its log", service({ logging: { options: { "env-regex": ".*" } } })],
    ["another driver's log options", service({ logging: { driver: "local", options: { tag: "x" } } })],
    ["message queues of the kernel", service({ sysctls: { "kernel.msgmnb": 65_537 } })],
    ["closed connections", service({ sysctls: { "net.ipv4.tcp_max_tw_buckets": 1_000_000 } })],
    ["a number of message queues that svc cannot read", service({ sysctls: ["kernel.msgmni=1e9"] })],
    [
      "a command after the start that runs as root",
      service({ user: `${nobody}:${nobody}`, post_start: [{ command: "id", user: "root" }] }),
    ],
    [
      "a config in a mount of another service",
      {
        services: {
          web: { image: "a", volumes_from: ["api"], configs: [{ source: "a", target: "/x/a" }] },
          api: { image: "a", volumes_from: ["db"] },
          db: { image: "a", volumes: [`${place.dir}/data:/x`] },
        },
      },
    ],
    [
      "a secret of another service in a mount",
      {
        services: {
          web: { image: "a", volumes_from: ["api"], volumes: [`${place.dir}/data:/run/secrets`] },
          api: { image: "a", volumes_from: ["db"] },
          db: { image: "a", secrets: ["a"] },
        },
      },
    ],
    [
      "mounts of two services at one target",
      {
        services: {
          web: { image: "a", volumes_from: ["api", "db:ro"] },
          api: { image: "a", volumes: [`${place.dir}/data:/x`] },
          db: { image: "a", volumes: [`${place.dir}/repo:/x/`] },
        },
      },
    ],
    [
      "mounts of other services",
      {
        services: {
          web: { image: "a", volumes_from: ["api", "db"] },
          api: { image: "a", volumes: Array.from({ length: 33 }, (_, n) => `/a${n}`) },
          db: { image: "a", volumes: Array.from({ length: 33 }, (_, n) => `/b${n}`) },
        },
      },
    ],
    ["health checks", service({ healthcheck: { test: "true", interval: "999ms" } })],
    ["health checks as the image says", service({ healthcheck: { test: "true", interval: "0s" } })],
    ["health checks in microseconds", service({ healthcheck: { test: "true", interval: "900us" } })],
    ["health checks at first", service({ healthcheck: { test: "true", start_interval: "10ms" } })],
    [
      "health checks of many words",
      service({ healthcheck: { test: ["CMD", "true", ...Array.from({ length: 400 }, () => "ten-letter")] } }),
    ],
    ["health checks that take long", service({ healthcheck: { test: "true", timeout: "61m" } })],
    ["health checks again and again", service({ healthcheck: { test: "true", retries: 1_001 } })],
    ["memory without end as a file system", service({ tmpfs: ["/x:size=0"] })],
    ["memory of blocks as a file system", service({ tmpfs: ["/x:nr_blocks=0"] })],
    ["inodes without end", service({ tmpfs: ["/x:nr_inodes=0"] })],
    ["devices in memory", service({ tmpfs: ["/x:dev"] })],
    ["memory as many file systems", service({ tmpfs: Array.from({ length: 9 }, (_, n) => `/x${n}`) })],
    [
      "memory as two file systems",
      service({
        tmpfs: ["/x:size=1200m"],
        volumes: [{ type: "tmpfs", target: "/y", tmpfs: { size: 1_258_291_200 } }],
      }),
    ],
    ["labels of SELinux for its files", service({ volumes: [`${place.dir}/data:/x:Z`] })],
    ["shared labels of SELinux for its files", service({ volumes: [`${place.dir}/data:/x:ro,z`] })],
    [
      "labels of SELinux as an object",
      service({
        volumes: [{ type: "bind", source: `${place.dir}/data`, target: "/x", bind: { selinux: "z" } }],
      }),
    ],
    ["two mounts in one place", service({ volumes: ["/x", `${place.dir}/data:/y/../x/`] })],
    ["content that compose would write", service({ configs: ["a"] }, { configs: { a: { content: "x" } } })],
    ["a config in a mount", service({ volumes: ["/x"], configs: [{ source: "a", target: "/x/../x/a" }] })],
    ["a config that replaces a mount", service({ volumes: ["/a"], configs: ["a"] })],
    ["a secret at a file system in memory", service({ tmpfs: ["/run/secrets/a"], secrets: ["a"] })],
    [
      "a secret in a volume inside of a file system in memory",
      service({ tmpfs: ["/run"], volumes: ["/run/secrets"], secrets: ["a"] }),
    ],
    ["a secret in a mount", service({ volumes: ["/run/secrets"], secrets: [{ source: "a", target: "b" }] })],
    ["copies", service({ scale: 1000 })],
    ["mounts of a service", service({ volumes: Array.from({ length: 65 }, (_, n) => `/v${n}`) })],
    [
      "mounts of several kinds",
      service(
        {
          volumes: Array.from({ length: 62 }, (_, n) => `${place.dir}/data:/v${n}:ro`),
          tmpfs: ["/t", "/u"],
          configs: ["a"],
        },
        { configs: { a: { file: `${place.dir}/repo/app.conf` } } },
      ),
    ],
    ["exposed ports in ranges", service({ expose: ["1-65535/tcp", "1-65535/udp", "1-65535/sctp"] })],
    ["exposed ports one by one", service({ expose: Array.from({ length: 513 }, (_, n) => `${2000 + n}`) })],
    ["ports in a range", service({ ports: ["9000-60000:9000-60000"] })],
    ["ports in a range, wherever they are free", service({ ports: ["2000-60000"] })],
    ["ports in a range, as an object", service({ ports: [{ published: "2000-3000", target: 80 }] })],
    ["ports one by one", service({ ports: Array.from({ length: 600 }, (_, n) => `${2000 + n}:80`) })],
    ["deployed copies", service({ deploy: { replicas: 1000 } })],
    ["words that each list of containers has", service({ labels: { a: "a".repeat(300_000) } })],
    ["words of all copies", service({ command: ["a".repeat(10_000)], scale: 32 })],
  ];
}

/** Ports that are for root. */
export const rootsPorts: readonly JsonValue[] = [
  "80:80",
  "127.0.0.1:22:22/tcp",
  "[::1]:443:443",
  "1000-1010:1000-1010",
  { published: "25", target: 25 },
  { published: 53, target: 53 },
  "0-1023:80",
  "0-8000:80",
  "8000-7000:80",
  "9000-65536:80",
  { published: "0-1023", target: 80 },
  { published: "1023-8000", target: 80 },
  { published: "+80", target: 80 },
  { published: " 80", target: 80 },
];

/** All of them. */
export function excessiveFiles(dir: string): { title: string; document: JsonObject }[] {
  return [
    ...askingFiles({ dir }).map(([title, , document]) => ({ title, document })),
    ...greedyFiles({ dir }).map(([title, document]) => ({ title, document })),
    ...rootsPorts.map((port) => ({
      title: `port ${JSON.stringify(port)}`,
      document: service({ ports: [port] }),
    })),
  ];
}
