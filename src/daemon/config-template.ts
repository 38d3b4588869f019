/** The configuration file that `svc setup` writes: every key, commented out, with its description and default. */
import { alertKinds } from "../observability/alerts/alert-rules.ts";
import type { LimitTable } from "../lib/limit-table.ts";
import { snakeCase } from "../lib/snake-case.ts";
import { transportLimits } from "../server/http/limits.ts";
import { parseConfig } from "./config.ts";
import type { PathEnvironment } from "./paths.ts";
import { userLimits } from "./user-limits.ts";

/** @param file path at which the file will be written */
export function configTemplate(file: string, environment: PathEnvironment): string {
  const { api, store, apps, git, docker, system, metrics, log } = parseConfig({}, file, environment);
  const sections: Readonly<Record<string, readonly Entry[]>> = {
    api: [
      [
        "listen",
        `${api.listen.host}:${api.listen.port}`,
        "TCP address; port 0 chooses a free port. A unit svc-tcp.socket must have the same address.",
      ],
      ["socket", api.socket, "Path of the unix socket. A unit svc.socket must have the same path."],
      [
        "allowed_hosts",
        [],
        "Host names, in addition to loopback names, that TCP requests may have, such as a tunnel's.",
      ],
      [
        "trusted_proxies",
        [],
        "Addresses and ranges of reverse proxies whose headers X-Forwarded-For, -Host and -Proto are trusted.",
      ],
    ],
    store: [["dir", store.dir, "Directory of everything that the daemon writes."]],
    apps: [
      [
        "root_runs_as",
        "nobody",
        "Account that runs the process apps of root. Default: root, with a warning at install. An example:",
      ],
      [
        "backup_before_upgrade",
        apps.backUpBeforeUpgrade,
        "Whether an upgrade creates a backup first, unless the request decides.",
      ],
      ["check_updates", apps.checkUpdates, "Whether the daemon checks once a day for updates of apps."],
      ["path", apps.path, "Directories in which apps and their build steps find programs."],
      [
        "build_env",
        { ...apps.buildEnv },
        "Environment of build steps and of git, such as proxies and certificates.",
      ],
    ],
    git: [
      [
        "insecure_hosts",
        git.insecureHosts,
        "Hosts, or host:port, whose repositories may be fetched by http, or with a certificate that cannot be verified.",
      ],
    ],
    docker: [
      ["socket", docker.socket, "The container engine's socket."],
      [
        "publish_address",
        docker.publishAddress,
        "Host address for published ports that specify none. 0.0.0.0 allows other machines to connect.",
      ],
      ["subnet_pool", docker.subnetPool, "Range from which subnets of apps' networks are allocated."],
      ["users_pids_limit", docker.usersPidsLimit, "Maximum processes of a regular user's container."],
      [
        "users_build_network",
        docker.usersBuildNetwork,
        "Network of users' image builds: bridge for a separate one per user, or none.",
      ],
      [
        "shared_images",
        [...docker.sharedImages],
        'Local images that apps of all users may use without asking a registry, such as "team/*".',
      ],
      [
        "users_registries",
        [...docker.usersRegistries],
        'The only registries from which apps of regular users may get images, such as "registry.lan:5000" or "*.pkg.dev"; "*": all.',
      ],
    ],
    system: [["reboot_command", system.rebootCommand, "The command that reboots the host."]],
    metrics: [
      ["interval_secs", metrics.intervalSecs, "Interval between samples of the host, in seconds."],
      [
        "app_interval_secs",
        metrics.appIntervalSecs,
        "Interval between samples of apps' resource usage, in seconds.",
      ],
    ],
    log: [
      ["level", log.level, "Lowest severity in the log: trace, debug, info, warn, error, fatal or silent."],
    ],
    limits: limitEntries(userLimits, userLimitHelp),
    "api.limits": limitEntries(transportLimits, transportLimitHelp),
  };
  return [
    "# The configuration of svc. Keys that are commented out show their defaults, except examples.",
    "# `svc daemon --check` reports errors in it. The daemon reads it when it starts.",
    ...Object.entries(sections).flatMap(([name, entries]) => [
      "",
      `[${name}]`,
      ...entries.flatMap(entryLines),
    ]),
    "",
    "# Package indexes in addition to the one that comes with svc: a git repository, an https URL of an index.yaml, or a",
    "# directory that contains one. An example:",
    "#[[sources]]",
    '#name = "main"',
    '#url = "https://git.example.org/packages.git"',
    "",
    `# Alerts, none by default. Kinds: ${alertKinds.join(", ")}. An example:`,
    "#[[alerts]]",
    '#name = "disk"',
    '#when = "filesystem"',
    "# For a filesystem: its mount point (default: all), the usage in percent, and for how many seconds it must last.",
    '#path = "/"',
    "#above_percent = 90",
    "#for_secs = 300",
    '# An alert runs a command or calls a url = "https://…". Without either, `svc status` shows it.',
    `#command = 'printenv SVC_ALERT_MESSAGE | mail -s "$SVC_ALERT" root'`,
    "",
  ].join("\n");
}

type Value = string | number | boolean | readonly string[] | Readonly<Record<string, string>>;
type Entry = readonly [key: string, value: Value, words: string];

function entryLines([key, value, words]: Entry): string[] {
  return [`# ${words}`, `#${key} = ${tomlValue(value)}`];
}

function tomlValue(value: Value): string {
  if (typeof value !== "object" || Array.isArray(value)) return JSON.stringify(value);
  const pairs = Object.entries(value).map(([name, text]) => `${name} = ${JSON.stringify(text)}`);
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}

function limitEntries<Name extends string>(
  limits: LimitTable<Name>,
  words: Readonly<Record<NoInfer<Name>, string>>,
): Entry[] {
  return (Object.keys(limits) as Name[]).map((name) => [snakeCase(name), limits[name].default, words[name]]);
}

const userLimitHelp: Readonly<Record<keyof typeof userLimits, string>> = {
  maxAppsPerUser: "Apps that a user owns.",
  maxNetworksPerUser: "Container networks of a user's apps.",
  maxCredentialsPerUser: "Stored credentials of a user.",
  maxConsolesPerUser: "Concurrent console sessions of a user.",
  maxContainersPerUser: "Containers of a user's apps, including stopped ones.",
  maxPublishedPortsPerUser: "Ports of this host that a user's containers publish.",
  maxInstallsPerUser: "Concurrent installs and upgrades of a user.",
  maxInstalls:
    "Concurrent installs and upgrades of all regular users; those that take longer than 30 s do not count.",
  maxWaitingInstallsPerUser: "Waiting installs and upgrades of a user.",
  maxFetchBytes: "Size limit of a commit with its files, bytes.",
  maxGitMemoryBytes: "Address space of each process of git, bytes.",
  maxCacheBytesPerUser: "Disk space of fetched commits per user, bytes.",
  maxCacheBytes: "Disk space of the fetched commits of all users, bytes.",
  maxBuildsPerUser: "Concurrent image builds of a user.",
  maxBuildMemoryBytes: "Memory of each image build of a user, bytes.",
  maxBuildCpus: "CPUs of each image build of a user.",
  maxBuildProcesses: "Processes of a user's image builds.",
  maxBuildBytesPerUser: "Disk space of a user's built images and running image builds, bytes.",
  maxImageBytesPerUser: "Size of the images that were pulled for a user's apps, each counted whole, bytes.",
  maxBackupBytesPerUser:
    "Size of a user's archives in each storage, including uploads in progress, bytes; 0: no limit.",
};

const transportLimitHelp: Readonly<Record<keyof typeof transportLimits, string>> = {
  maxConnections: "Open connections, except root's on the socket.",
  maxConnectionsPerPeer: "Open connections per uid, per token, or per address without a token.",
  maxRootConnections: "Open connections of root on the socket.",
  firstBytesTimeoutMs: "Timeout for the first bytes of a connection, milliseconds.",
  headersTimeoutMs: "Timeout for the headers of a request, milliseconds.",
  requestTimeoutMs: "Timeout for the whole body of a request, milliseconds.",
  keepAliveTimeoutMs: "Timeout for an idle keep-alive connection, milliseconds.",
  idleTimeoutMs: "Timeout for a connection without traffic, milliseconds.",
  streamKeepAliveMs: "Silence after which a stream sends a keep-alive, milliseconds.",
  maxHeaderBytes: "Total size of the header fields of a request, bytes.",
  maxHeaderCount: "Number of header fields of a request.",
  maxStreamsPerSession: "Concurrent calls of an HTTP/2 session.",
  resetBudget: "Streams that the client of a session may reset in a burst.",
  resetRefillPerSec: "Resets per second that fill that budget again.",
  maxRequestsPerUser: "Pending requests of a user; one more closes its connection.",
  maxCallsPerUser: "Concurrent calls of a user.",
  maxStreamsPerUser: "Concurrent streams of a user, such as logs and events.",
  maxBodyBytes: "Size of the JSON body of a request, bytes.",
  maxMessageBytes: "Size of a message from root over Connect or gRPC, bytes.",
  maxTimeoutMs: "Longest deadline that a client may request, milliseconds.",
  tokenFailureBudget: "Wrong tokens in a burst from one address.",
  tokenFailureRefillPerSec: "Wrong tokens per second that fill that budget again.",
  stopGraceMs: "Grace period for running calls when the daemon stops, milliseconds.",
};
