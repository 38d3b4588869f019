/** The configuration file: TOML, every key documented here, unknown keys refused, one frozen object. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { alertKinds, type AlertRule } from "../observability/alerts/alert-rules.ts";
import { invalidRequest, SvcError, notFound } from "../errors.ts";
import { systemDirs } from "../run-as/launch.ts";
import { deepFreeze } from "../lib/freeze.ts";
import type { LimitTable, LimitsIn } from "../lib/limit-table.ts";
import { snakeCase } from "../lib/snake-case.ts";
import { transportLimits, type TransportLimits } from "../server/http/limits.ts";
import { defaultPaths, type PathEnvironment } from "./paths.ts";
import { TableReader } from "./table-reader.ts";
import { userLimits, type UserLimits } from "./user-limits.ts";

/** One index of packages. */
export interface SourceConfig {
  /** What `source/id` and `--source` call it: `[a-z0-9][a-z0-9._-]{0,63}`. */
  readonly name: string;
  /** A git repository, an https URL of an `index.yaml`, or a directory that holds one. */
  readonly url: string;
}

/** The configuration file with defaults. All paths are absolute. */
export interface Config {
  /** `system`: root, for all users. `user`: one user's own daemon. */
  readonly mode: "system" | "user";
  /** The configuration file; it may be missing. */
  readonly file: string;
  /** The primary token's file, beside the configuration file. */
  readonly tokenFile: string;
  readonly api: {
    /** TCP address, `host:port`. Default `127.0.0.1:8420`; port 0 takes a free one. */
    readonly listen: { readonly host: string; readonly port: number };
    /** Path of the unix socket. */
    readonly socket: string;
    /** Host names beside the loopback ones that TCP requests may carry, such as the tunnel's. Default none. */
    readonly allowedHosts: readonly string[];
    /** `[api.limits]`: what a client may take of connections, time and memory. */
    readonly limits: TransportLimits;
  };
  readonly store: {
    /** Where everything that the daemon writes lies. */
    readonly dir: string;
  };
  readonly sources: readonly SourceConfig[];
  /** `[limits]`: what the users may have and do at a time. */
  readonly limits: UserLimits;
  readonly apps: {
    /** The account that runs root-owned `process` apps; default root itself, with a warning at install. */
    readonly rootRunsAs: string | undefined;
    /** Whether an upgrade that does not say takes a backup first. Default false. */
    readonly backUpBeforeUpgrade: boolean;
    /** Whether it is looked once a day for newer versions of apps. Default true. */
    readonly checkUpdates: boolean;
    /**
     * Directories in which apps and their build steps find programs. Default: in system mode the usual system
     * directories, in user mode the PATH of the daemon.
     */
    readonly path: readonly string[];
    /**
     * Environment of build steps and of git, such as proxies and certificates. Default: what the daemon's own environment
     * says of certificates, and in user mode of proxies too (whose URLs may hold a password that is not every user's).
     */
    readonly buildEnv: Readonly<Record<string, string>>;
  };
  readonly docker: {
    /** Path of the container engine's socket. Default `DOCKER_HOST` where that names one, else `/var/run/docker.sock`. */
    readonly socket: string;
    /** Where ports of regular users' containers are published that name no address of the host. Default `127.0.0.1`. */
    readonly publishAddress: string;
    /** Subnets of apps' networks are taken from it. Default `10.201.0.0/16`. */
    readonly subnetPool: string;
    /** Processes of a regular user's container, unless its compose file says otherwise. Default 4096. */
    readonly usersPidsLimit: number;
    /** Network of image builds of regular users: one of their own, or none. Default `bridge`. */
    readonly usersBuildNetwork: "bridge" | "none";
    /** Local images that apps of all users may use without asking a registry, such as `team/*`. Default none. */
    readonly sharedImages: readonly string[];
  };
  readonly system: {
    /** The command that reboots the host, as an argv. Default `systemctl reboot`. */
    readonly rebootCommand: readonly string[];
  };
  readonly metrics: {
    /** Seconds from one sample of the host to the next. Default 10. */
    readonly intervalSecs: number;
    /** Seconds from one sample of what apps use to the next. Default 60. */
    readonly appIntervalSecs: number;
  };
  /** `[[alerts]]`: what the operator wants to hear of. */
  readonly alerts: readonly AlertRule[];
  readonly log: {
    /** Least severity that is logged. Default `info`. */
    readonly level: LogLevel;
  };
}

const defaultMetricsIntervalSecs = 10;
const defaultAppIntervalSecs = 60;
const maxAlerts = 100;
const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

export interface LoadConfigOptions {
  /** The configuration file. Default: the mode's own, which may be missing. */
  file?: string | undefined;
  environment: PathEnvironment;
}

/**
 * Reads and checks the configuration.
 * @throws SvcError `not_found` when a named file is missing; `invalid_request` with one violation per key, and for what is
 * no regular file.
 */
export async function loadConfig(options: LoadConfigOptions): Promise<Config> {
  const defaults = defaultPaths(options.environment);
  const file = options.file === undefined ? defaults.configFile : resolve(options.file);
  const text = await readConfigFile(file, options.file !== undefined);
  // The parser is loaded only where there is something to parse: the in-process CLI often has nothing.
  const document = text === "" ? {} : await parseToml(text, file);
  return parseConfig(document, file, options.environment);
}

/** Far more than anybody writes. */
const maxFileBytes = 4 << 20;

async function readConfigFile(file: string, named: boolean): Promise<string> {
  try {
    // NONBLOCK: a FIFO has nobody wait for its other end.
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
    // The lines around it come behind.
    const [why = ""] = String(error instanceof Error ? error.message : error).split("\n");
    throw new SvcError("invalid_request", `${at}: ${why}`, { cause: error });
  }
}

/** Checks a parsed document; `file` names it in messages and places the token file. */
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
      allowedHosts: api.strings("allowed_hosts") ?? [],
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
    docker: {
      socket: docker.path("socket", baseDir, defaults.engineSocket),
      publishAddress: docker.ipAddress("publish_address") ?? "127.0.0.1",
      subnetPool: docker.subnet("subnet_pool") ?? "10.201.0.0/16",
      usersPidsLimit: docker.integer("users_pids_limit", { min: 64, max: 32_768 }) ?? 4096,
      usersBuildNetwork: docker.word("users_build_network", ["bridge", "none"]) ?? "bridge",
      sharedImages: docker.images("shared_images") ?? [],
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

/** At most one of a command and a URL: two that are to hear of something are two rules. */
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
