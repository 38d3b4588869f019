/**
 * The configuration file: TOML. Every key is documented here; unknown keys are rejected; the result is one frozen
 * object.
 */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { alertKinds, type AlertRule } from "../observability/alerts/alert-rules.ts";
import { invalidRequest, SvcError, notFound } from "../errors.ts";
import { systemDirs } from "../run-as/launch.ts";
import { wellKnownRegistries } from "../runtimes/docker/user-registries.ts";
import type { LimitTable, LimitsIn } from "../lib/limit-table.ts";
import { snakeCase } from "../lib/snake-case.ts";
import { transportLimits, type TransportLimits } from "../server/http/limits.ts";
import { defaultPaths, type PathEnvironment } from "./paths.ts";
import { TableReader } from "./table-reader.ts";
import { userLimits, type UserLimits } from "./user-limits.ts";

/** One index of packages. */
export interface SourceConfig {
  /** Name in `source/id` and `--source`: `[a-z0-9][a-z0-9._-]{0,63}`. */
  readonly name: string;
  /** A git repository, an https URL of an `index.yaml`, or a directory that contains one. */
  readonly url: string;
}

/** The configuration file with defaults. All paths are absolute. */
export interface Config {
  /** `system`: one daemon of root for all users. `user`: a per-user daemon. */
  readonly mode: "system" | "user";
  /** The configuration file; it may be missing. */
  readonly file: string;
  /** The file of the primary token, in the same directory as the configuration file. */
  readonly tokenFile: string;
  readonly api: {
    /** TCP address, `host:port`. Default `127.0.0.1:8420`; port 0 chooses a free port. */
    readonly listen: { readonly host: string; readonly port: number };
    /** Path of the unix socket. */
    readonly socket: string;
    /** Host names, in addition to loopback names, that TCP requests may have, such as a tunnel's. Default none. */
    readonly allowedHosts: readonly string[];
    /**
     * Addresses and ranges of reverse proxies whose headers `X-Forwarded-For`, `-Host` and `-Proto`, or `Forwarded`, are
     * trusted. Default none.
     */
    readonly trustedProxies: readonly string[];
    /** `[api.limits]`: limits of a client for connections, time and memory. */
    readonly limits: TransportLimits;
  };
  readonly store: {
    /** Directory of everything that the daemon writes. */
    readonly dir: string;
  };
  readonly sources: readonly SourceConfig[];
  /** `[limits]`: what users may own, and how much they may run at a time. */
  readonly limits: UserLimits;
  readonly apps: {
    /** The account that runs `process` apps of root. Default: root, with a warning at install. */
    readonly rootRunsAs: string | undefined;
    /** Whether an upgrade creates a backup first, unless the request decides. Default false. */
    readonly backUpBeforeUpgrade: boolean;
    /** Whether the daemon checks once a day for updates of apps. Default true. */
    readonly checkUpdates: boolean;
    /**
     * Directories in which apps and their build steps find programs. Default: the usual system directories in system
     * mode, the daemon's PATH in user mode.
     */
    readonly path: readonly string[];
    /**
     * Environment of build steps and of git, such as proxies and certificates. Default: the certificate variables of
     * the daemon's own environment. In user mode the proxy variables, too; in system mode not, because their URLs may
     * contain a password that other users must not see.
     */
    readonly buildEnv: Readonly<Record<string, string>>;
  };
  readonly git: {
    /**
     * Hosts, or `host:port`, whose repositories may be fetched by http, or by https with a certificate that cannot be
     * verified. Default none.
     */
    readonly insecureHosts: readonly string[];
  };
  readonly docker: {
    /**
     * Path of the container engine's socket. Default: `DOCKER_HOST` if it is a unix socket, else
     * `/var/run/docker.sock`.
     */
    readonly socket: string;
    /** Host address for published ports of regular users' containers that specify no address. Default `127.0.0.1`. */
    readonly publishAddress: string;
    /** Range from which the subnets of apps' networks are allocated. Default `10.201.0.0/16`. */
    readonly subnetPool: string;
    /** Maximum processes of a regular user's container, unless its compose file sets a limit. Default 4096. */
    readonly usersPidsLimit: number;
    /** Network of regular users' image builds: a separate one per user, or none. Default `bridge`. */
    readonly usersBuildNetwork: "bridge" | "none";
    /** Local images that apps of all users may use without asking a registry, such as `team/*`. Default none. */
    readonly sharedImages: readonly string[];
    /**
     * The only registries from which apps of regular users may get images: hosts as in image names, `*.pkg.dev` for all
     * hosts below one, `*` for all. Default: well-known public registries.
     */
    readonly usersRegistries: readonly string[];
  };
  readonly system: {
    /** The command that reboots the host, as an argv. Default `systemctl reboot`. */
    readonly rebootCommand: readonly string[];
  };
  readonly metrics: {
    /** Interval between samples of the host, in seconds. Default 10. */
    readonly intervalSecs: number;
    /** Interval between samples of apps' resource usage, in seconds. Default 60. */
    readonly appIntervalSecs: number;
  };
  /** `[[alerts]]`: rules for notifications to the operator. */
  readonly alerts: readonly AlertRule[];
  readonly log: {
    /** Lowest severity that is logged. Default `info`. */
    readonly level: LogLevel;
  };
}

const defaultMetricsIntervalSecs = 10;
const defaultAppIntervalSecs = 60;
const maxAlerts = 100;
const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

export interface LoadConfigOptions {
  /** The configuration file. Default: that of the mode, which may be missing. */
  file?: string | undefined;
  environment: PathEnvironment;
}

/**
 * Reads and checks the configuration.
 * @throws SvcError `not_found` if a named file is missing; `invalid_request` with one violation per key, or if the
 *   path is not a regular file
 */
export async function loadConfig(options: LoadConfigOptions): Promise<Config> {
  const defaults = defaultPaths(options.environment);
  const file = options.file === undefined ? defaults.configFile : resolve(options.file);
  const text = await readConfigFile(file, options.file !== undefined);
  // Load the parser only if needed: the in-process CLI often has no configuration file.
  const document = text === "" ? {} : await parseToml(text, file);
  return parseConfig(document, file, options.environment);
}

/** Far larger than any real configuration file. */
const maxFileBytes = 4 << 20;

async function readConfigFile(file: string, named: boolean): Promise<string> {
  try {
    // NONBLOCK: opening a FIFO must not wait for a writer.
    await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    const stats = await handle.stat();
    if (!stats.isFile()) throw new SvcError("invalid_request", `${file} is not a regular file`);
    if (stats.size > maxFileBytes) throw new SvcError("invalid_request", `${file} is larger than 4 MiB`);
    return await handle.readFile("utf8");
  } catch (error) {
    if (error instanceof SvcError) throw error;
    const isThere = (error as NodeJS.ErrnoException).code !== "ENOENT";
    if (!isThere && !named) return "";
    const message = isThere
      ? `cannot read the configuration file ${file}`
      : `there is no configuration file ${file}`;
    throw notFound("file", file, message, error);
  }
}

async function parseToml(text: string, file: string): Promise<Record<string, unknown>> {
  const { parse, TomlError } = await import("smol-toml");
  try {
    return parse(text);
  } catch (error) {
    const at = error instanceof TomlError ? `${file}, line ${error.line}` : file;
    // The parser appends the surrounding lines.
    const [why = ""] = String(error instanceof Error ? error.message : error).split("\n");
    throw new SvcError("invalid_request", `${at}: ${why}`, { cause: error });
  }
}

/** Checks a parsed document. `file` appears in messages and determines the path of the token file. */
export function parseConfig(
  document: Record<string, unknown>,
  file: string,
  environment: PathEnvironment,
): Config {
  const defaults = defaultPaths(environment);
  const root = new TableReader(document, "");
  const api = root.table("api");
  const store = root.table("store");
  const apps = root.table("apps");
  const git = root.table("git");
  const docker = root.table("docker");
  const system = root.table("system");
  const metrics = root.table("metrics");
  const log = root.table("log");
  const baseDir = dirname(file);
  const config: Config = {
    mode: environment.uid === 0 ? "system" : "user",
    file,
    tokenFile: join(baseDir, "api.token"),
    api: {
      listen: api.address("listen", { host: "127.0.0.1", port: 8420 }),
      socket: api.path("socket", baseDir, defaults.socket),
      allowedHosts: api.hostNames("allowed_hosts") ?? [],
      trustedProxies: api.networks("trusted_proxies") ?? [],
      limits: readLimits(api.table("limits"), transportLimits),
    },
    store: { dir: store.path("dir", baseDir, defaults.storeDir) },
    sources: root
      .tables("sources")
      .map((source) => ({ name: source.sourceName("name"), url: source.location("url", baseDir) })),
    limits: readLimits(root.table("limits"), userLimits),
    apps: {
      rootRunsAs: apps.string("root_runs_as"),
      backUpBeforeUpgrade: apps.boolean("backup_before_upgrade") ?? false,
      checkUpdates: apps.boolean("check_updates") ?? true,
      path: apps.directories("path") ?? defaultSearchPath(environment),
      buildEnv: apps.environment("build_env") ?? defaultBuildEnv(environment),
    },
    git: { insecureHosts: git.hosts("insecure_hosts") ?? [] },
    docker: {
      socket: docker.path("socket", baseDir, defaults.engineSocket),
      publishAddress: docker.ipAddress("publish_address") ?? "127.0.0.1",
      subnetPool: docker.subnet("subnet_pool") ?? "10.201.0.0/16",
      usersPidsLimit: docker.integer("users_pids_limit", { min: 64, max: 32_768 }) ?? 4096,
      usersBuildNetwork: docker.word("users_build_network", ["bridge", "none"]) ?? "bridge",
      sharedImages: docker.images("shared_images") ?? [],
      usersRegistries: docker.registries("users_registries") ?? wellKnownRegistries,
    },
    system: { rebootCommand: system.strings("reboot_command") ?? ["systemctl", "reboot"] },
    metrics: {
      intervalSecs: metrics.integer("interval_secs", { min: 1, max: 300 }) ?? defaultMetricsIntervalSecs,
      appIntervalSecs: metrics.integer("app_interval_secs", { min: 1, max: 300 }) ?? defaultAppIntervalSecs,
    },
    alerts: root.tables("alerts").map((alert) => readAlert(alert)),
    log: { level: log.word("level", logLevels) ?? "info" },
  };
  const violations = root.finish();
  for (const list of ["sources", "alerts"] as const) {
    const names = config[list].map(({ name }) => name);
    for (const name of new Set(names.filter((name, at) => names.indexOf(name) !== at))) {
      violations.push({ field: `${list}.name`, description: `"${name}" names two ${list}` });
    }
  }
  if (config.alerts.length > maxAlerts) {
    violations.push({ field: "alerts", description: `must be at most ${maxAlerts} rules` });
  }
  if (config.system.rebootCommand.length === 0) {
    violations.push({ field: "system.reboot_command", description: "must name a program" });
  }
  if (violations.length > 0) {
    const { message, payload } = invalidRequest(violations);
    throw new SvcError("invalid_request", `${file}: ${message}`, { payload });
  }
  return deepFreeze(config);
}

/** Freezes a tree of values, except for bytes, which JavaScript cannot freeze. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return value;
  for (const nested of Object.values(value)) if (typeof nested === "object") deepFreeze(nested);
  return Object.freeze(value);
}

/** Allows one command or one URL; two notifications need two rules. */
function readAlert(table: TableReader): AlertRule {
  const when = table.word("when", alertKinds) ?? "filesystem";
  const [command, url] = [table.string("command"), table.string("url")];
  return {
    name: table.sourceName("name"),
    when,
    path: table.string("path"),
    abovePercent: table.integer("above_percent", { min: 1, max: 99 }) ?? 90,
    forSecs: table.integer("for_secs", { min: 0, max: 86_400 }) ?? (when === "filesystem" ? 300 : 0),
    action:
      command === undefined
        ? url === undefined
          ? undefined
          : { type: "http", url }
        : { type: "shell", command },
  };
}

function readLimits<Table extends LimitTable>(table: TableReader, limits: Table): LimitsIn<Table> {
  const read = Object.entries(limits).map(([name, limit]) => {
    return [name, table.integer(snakeCase(name), limit) ?? limit.default];
  });
  return Object.fromEntries(read) as LimitsIn<Table>;
}

const certificateVariables = [
  "NODE_EXTRA_CA_CERTS",
  "SSL_CERT_FILE",
  "SSL_CERT_DIR",
  "GIT_SSL_CAINFO",
  "CURL_CA_BUNDLE",
  "REQUESTS_CA_BUNDLE",
  "PIP_CERT",
];
const proxyVariables = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

function defaultBuildEnv({ uid, env }: PathEnvironment): Readonly<Record<string, string>> {
  const proxies = uid === 0 ? [] : proxyVariables.flatMap((name) => [name, name.toLowerCase()]);
  const names = [...certificateVariables, ...proxies];
  return Object.fromEntries(
    names.flatMap((name) => (env[name] === undefined ? [] : ([[name, env[name]]] as [string, string][]))),
  );
}

function defaultSearchPath({ uid, env }: PathEnvironment): readonly string[] {
  // Other users' apps must not depend on root's PATH.
  const own = uid === 0 ? [] : (env["PATH"] ?? "").split(":").filter((directory) => isAbsolute(directory));
  return own.length > 0 ? own : systemDirs;
}
