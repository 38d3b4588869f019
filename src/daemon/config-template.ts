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
  const { api, store, apps, docker, system, metrics, log } = parseConfig({}, file, environment);
  const sections: Readonly<Record<string, readonly Entry[]>> = {
    api: [
      [
        "listen",
        `${api.listen.host}:${api.listen.port}`,
        "TCP address; port 0 takes a free one. A unit svc-tcp.socket must name the same.",
      ],
      ["socket", api.socket, "Path of the unix socket; a unit svc.socket must name the same."],
      [
        "allowed_hosts",
        [],
        "Host names beside the loopback ones that TCP requests may carry, such as a tunnel's.",
      ],
    ],
    store: [["dir", store.dir, "Where everything that the daemon writes lies."]],
    apps: [
      [
        "root_runs_as",
        "nobody",
        "The account that runs root's own apps. Without it root does, with a warning. An example:",
      ],
      [
        "backup_before_upgrade",
        apps.backUpBeforeUpgrade,
        "Whether an upgrade that does not say takes a backup first.",
      ],
      ["check_updates", apps.checkUpdates, "Whether it is looked once a day for newer versions of apps."],
      ["path", apps.path, "Where apps and their build steps find programs."],
      [
        "build_env",
        { ...apps.buildEnv },
        "Environment of build steps and of git, such as proxies and certificates.",
      ],
    ],
    docker: [
      ["socket", docker.socket, "The container engine's socket."],
      [
        "publish_address",
        docker.publishAddress,
        "Address for published ports of containers that name none. 0.0.0.0 lets other machines in.",
      ],
      ["subnet_pool", docker.subnetPool, "Where subnets of apps' networks are taken from."],
      ["users_pids_limit", docker.usersPidsLimit, "Processes of each of users' containers."],
      [
        "users_build_network",
        docker.usersBuildNetwork,
        "Network of users' image builds: bridge for one of their own, or none.",
      ],
      [
        "shared_images",
        [...docker.sharedImages],
        'Local images that apps of all users may use without asking a registry, such as "team/*".',
      ],
    ],
    system: [["reboot_command", system.rebootCommand, "The command that reboots the host."]],
    metrics: [
      ["interval_secs", metrics.intervalSecs, "Seconds from one sample of the host to the next."],
      ["app_interval_secs", metrics.appIntervalSecs, "Seconds from one sample of what apps use to the next."],
    ],
    log: [
      ["level", log.level, "Least severity in the log: trace, debug, info, warn, error, fatal or silent."],
    ],
    limits: limitEntries(userLimits, userLimitHelp),
    "api.limits": limitEntries(transportLimits, transportLimitHelp),
  };
  return [
    "# The configuration of svc. A key that is commented out shows its default, unless it is called an example.",
    "# `svc daemon --check` says what is wrong with it; the daemon reads it when it starts.",
    ...Object.entries(sections).flatMap(([name, entries]) => [
      "",
      `[${name}]`,
      ...entries.flatMap(entryLines),
    ]),
    "",
    "# Indexes of packages beside the one that comes with svc: a git repository, an https URL of an index.yaml, or a directory",
    "# that holds one. An example:",
    "#[[sources]]",
    '#name = "main"',
    '#url = "https://git.example.org/packages.git"',
    "",
    `# What you want to hear of, nothing by default: ${alertKinds.join(", ")}. An example:`,
    "#[[alerts]]",
    '#name = "disk"',
    '#when = "filesystem"',
    "# For a filesystem: where it is mounted (without it: each), how full it is, in percent, and for how many seconds.",
    '#path = "/"',
    "#above_percent = 90",
    "#for_secs = 300",
    '# A command is told, or in its place a url = "https://…"; without either it shows in `svc status`.',
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
  maxNetworksPerUser: "Networks of the container engine that a user's apps have.",
  maxCredentialsPerUser: "Credentials that a user keeps.",
  maxConsolesPerUser: "Consoles that a user has open.",
  maxContainersPerUser: "Containers of a user's apps, stopped ones included.",
  maxPublishedPortsPerUser: "Ports of this host that a user's containers publish.",
  maxInstallsPerUser: "Installs and upgrades of a user at a time.",
  maxInstalls:
    "Installs and upgrades of all regular users at a time; those that take longer than 30 s do not count.",
  maxWaitingInstallsPerUser: "Installs and upgrades of a user that wait.",
  maxFetchBytes: "Size limit of a commit with its files, bytes.",
  maxGitMemoryBytes: "Address space of each process of git, bytes.",
  maxCacheBytesPerUser: "Fetched commits that are kept for a user, bytes.",
  maxCacheBytes: "Fetched commits that are kept for all, bytes.",
  maxBuildsPerUser: "Image builds of a user at a time.",
  maxBuildMemoryBytes: "Memory of each image build of a user, bytes.",
  maxBuildCpus: "CPUs of each image build of a user.",
  maxBuildProcesses: "Processes of a user's image builds.",
  maxBuildBytesPerUser: "Disk space of a user's built images and running image builds, bytes.",
  maxBackupBytesPerUser:
    "A user's archives in each storage, with those on their way there, bytes; 0: no limit.",
};

const transportLimitHelp: Readonly<Record<keyof typeof transportLimits, string>> = {
  maxConnections: "Open connections, root's on the socket aside.",
  maxConnectionsPerPeer: "Open connections of a uid, a token, or an address that has shown none.",
  maxRootConnections: "Open connections of root on the socket.",
  firstBytesTimeoutMs: "Until the first bytes of a connection, milliseconds.",
  headersTimeoutMs: "Until the headers of a request, milliseconds.",
  requestTimeoutMs: "Until the whole body of a request, milliseconds.",
  keepAliveTimeoutMs: "Until an idle kept-alive connection is closed, milliseconds.",
  idleTimeoutMs: "Until a connection without any traffic is closed, milliseconds.",
  maxHeaderBytes: "All header fields of a request together, bytes.",
  maxHeaderCount: "Header fields of a request.",
  maxStreamsPerSession: "Calls at once on a session of HTTP/2.",
  resetBudget: "Streams that a session's client may reset in a burst.",
  resetRefillPerSec: "Resets per second that fill that budget again.",
  maxRequestsPerUser: "Requests of a user that are not answered; one more costs its connection.",
  maxCallsPerUser: "Calls of a user at once.",
  maxStreamsPerUser: "Streams of a user at once, such as logs and events.",
  maxBodyBytes: "The JSON body of one request, bytes.",
  maxMessageBytes: "One message of root's over Connect or gRPC, bytes.",
  maxTimeoutMs: "Longest deadline that a client may ask for, milliseconds.",
  tokenFailureBudget: "Wrong tokens in a burst from one address.",
  tokenFailureRefillPerSec: "Wrong tokens per second that fill that budget again.",
  stopGraceMs: "For running calls to end when the daemon stops, milliseconds.",
};
