/** The configuration file: TOML, every key documented here, unknown keys refused, one frozen object. */
import { readFile } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { invalidRequest, SvcError, type FieldViolation } from "../errors.ts";
import { systemDirs } from "../identity/launch.ts";
import { defaultPaths, type PathEnvironment } from "./paths.ts";

/** One index of packages. */
export interface SourceConfig {
  /** What `source/id` and `--source` call it: `[a-z0-9][a-z0-9._-]{0,63}`. */
  readonly name: string;
  /** A git repository, an https URL of an `index.yaml`, or a directory that holds one. */
  readonly url: string;
}

/** What the configuration file says, with defaults filled in. All paths are absolute. */
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
  };
  readonly store: {
    /** Where everything that the daemon writes lies. */
    readonly dir: string;
  };
  readonly sources: readonly SourceConfig[];
  readonly apps: {
    /** The account that runs root-owned `process` apps; default root itself, with a warning at install. */
    readonly rootRunsAs: string | undefined;
    /**
     * Directories in which apps and their build steps find programs. Default: in system mode the usual system
     * directories, in user mode the PATH of the daemon.
     */
    readonly path: readonly string[];
  };
  readonly system: {
    /** The command that reboots the host, as an argv. Default `systemctl reboot`. */
    readonly rebootCommand: readonly string[];
  };
  readonly log: {
    /** Least severity that is logged. Default `info`. */
    readonly level: LogLevel;
  };
}

const logLevels = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

export interface LoadConfigOptions {
  /** The configuration file. Default: the mode's own, which may be missing. */
  file?: string | undefined;
  environment: PathEnvironment;
}

/**
 * Reads and checks the configuration.
 * @throws SvcError `not_found` when a named file is missing; `invalid_request` with one violation per key.
 */
export async function loadConfig(options: LoadConfigOptions): Promise<Config> {
  const defaults = defaultPaths(options.environment);
  const file = options.file === undefined ? defaults.configFile : resolve(options.file);
  const text = await readConfigFile(file, options.file !== undefined);
  // The parser is loaded only where there is something to parse: the in-process CLI often has nothing.
  const document = text === "" ? {} : await parseToml(text, file);
  return parseConfig(document, file, options.environment);
}

async function readConfigFile(file: string, named: boolean): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" && !named) return "";
    throw new SvcError("not_found", "not_found", `cannot read the configuration file ${file}`, {
      cause: error,
    });
  }
}

async function parseToml(text: string, file: string): Promise<Record<string, unknown>> {
  const { parse } = await import("smol-toml");
  try {
    return parse(text);
  } catch (error) {
    const why = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
    throw new SvcError("invalid_argument", "invalid_request", `${file}: ${why}`, { cause: error });
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
  const system = root.table("system");
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
    },
    store: { dir: store.path("dir", baseDir, defaults.storeDir) },
    sources: root
      .tables("sources")
      .map((source) => ({ name: source.sourceName("name"), url: source.location("url", baseDir) })),
    apps: {
      rootRunsAs: apps.string("root_runs_as"),
      path: apps.directories("path") ?? defaultSearchPath(environment),
    },
    system: { rebootCommand: system.strings("reboot_command") ?? ["systemctl", "reboot"] },
    log: { level: log.word("level", logLevels) ?? "info" },
  };
  const violations = root.finish();
  const names = config.sources.map((source) => source.name);
  for (const name of new Set(names.filter((name, at) => names.indexOf(name) !== at))) {
    violations.push({ field: "sources.name", description: `"${name}" names two sources` });
  }
  if (config.system.rebootCommand.length === 0) {
    violations.push({ field: "system.reboot_command", description: "must name a program" });
  }
  if (violations.length > 0) {
    const { message, payload } = invalidRequest(violations);
    throw new SvcError("invalid_argument", "invalid_request", `${file}: ${message}`, { payload });
  }
  return deepFreeze(config);
}

function defaultSearchPath({ uid, env }: PathEnvironment): readonly string[] {
  // What root happens to have in its PATH is nothing that other users' apps should depend on.
  const own = uid === 0 ? [] : (env["PATH"] ?? "").split(":").filter((directory) => isAbsolute(directory));
  return own.length > 0 ? own : systemDirs;
}

/** Reads one TOML table: remembers which keys were asked for, so that the rest can be refused. */
class TableReader {
  readonly #values: Record<string, unknown>;
  readonly #prefix: string;
  readonly #asked = new Set<string>();
  readonly #violations: FieldViolation[];
  readonly #children: TableReader[] = [];

  constructor(values: Record<string, unknown>, prefix: string, violations: FieldViolation[] = []) {
    this.#values = values;
    this.#prefix = prefix;
    this.#violations = violations;
  }

  #take(key: string): unknown {
    this.#asked.add(key);
    return this.#values[key];
  }

  #refuse(key: string, description: string): void {
    this.#violations.push({ field: this.#prefix + key, description });
  }

  #child(values: unknown, key: string): TableReader {
    const isTable = typeof values === "object" && values !== null && !Array.isArray(values);
    if (!isTable) this.#refuse(key, "must be a table");
    const child = new TableReader(
      isTable ? (values as Record<string, unknown>) : {},
      `${this.#prefix}${key}.`,
      this.#violations,
    );
    this.#children.push(child);
    return child;
  }

  table(key: string): TableReader {
    return this.#child(this.#take(key) ?? {}, key);
  }

  tables(key: string): TableReader[] {
    const value = this.#take(key) ?? [];
    if (!Array.isArray(value)) {
      this.#refuse(key, `must be an array of tables: [[${key}]]`);
      return [];
    }
    return value.map((entry, at) => this.#child(entry, `${key}[${at}]`));
  }

  string(key: string): string | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (typeof value === "string" && value !== "") return value;
    this.#refuse(key, "must be a text that is not empty");
    return undefined;
  }

  required(key: string): string {
    if (this.#values[key] === undefined) this.#refuse(key, "is missing");
    return this.string(key) ?? "";
  }

  strings(key: string): readonly string[] | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (Array.isArray(value) && value.every((entry) => typeof entry === "string")) return value;
    this.#refuse(key, "must be a list of texts");
    return undefined;
  }

  directories(key: string): readonly string[] | undefined {
    const value = this.strings(key);
    const relative = value?.find((directory) => !isAbsolute(directory) || directory.includes(":"));
    if (relative !== undefined) this.#refuse(key, `"${relative}" must be an absolute path without a colon`);
    return value;
  }

  sourceName(key: string): string {
    const value = this.required(key);
    if (value !== "" && !/^[a-z0-9][a-z0-9._-]{0,63}$/.test(value)) {
      this.#refuse(
        key,
        `"${value}" must be 1 to 64 of a-z, 0-9, ".", "_", "-", and begin with a letter or digit`,
      );
    }
    return value;
  }

  word<T extends string>(key: string, words: readonly T[]): T | undefined {
    const value = this.string(key);
    if (value === undefined || words.includes(value as T)) return value as T | undefined;
    this.#refuse(key, `"${value}" must be one of ${words.join(", ")}`);
    return undefined;
  }

  /** A URL as it is; `./…` and `../…` are relative to the configuration file. */
  location(key: string, baseDir: string): string {
    const value = this.required(key);
    return /^\.\.?(\/|$)/.test(value) ? resolve(baseDir, value) : value;
  }

  /** A path; a relative one is relative to the configuration file. */
  path(key: string, baseDir: string, fallback: string): string {
    const value = this.string(key);
    if (value === undefined) return fallback;
    return isAbsolute(value) ? resolve(value) : resolve(baseDir, value);
  }

  address(key: string, fallback: { host: string; port: number }): { host: string; port: number } {
    const value = this.string(key);
    if (value === undefined) return fallback;
    const match = /^(?:\[([0-9A-Fa-f:]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(value);
    const port = Number(match?.[3]);
    if (match === null || port > 65535) {
      this.#refuse(key, `"${value}" must be host:port, such as 127.0.0.1:8420 or [::1]:8420`);
      return fallback;
    }
    return { host: match[1] ?? match[2] ?? "", port };
  }

  /** The violations found in this table and those below it, unknown keys included. */
  finish(): FieldViolation[] {
    for (const key of Object.keys(this.#values)) {
      if (!this.#asked.has(key)) this.#refuse(key, "is no setting of svc");
    }
    for (const child of this.#children) child.finish();
    return this.#violations;
  }
}

function deepFreeze<T extends object>(value: T): T {
  for (const inner of Object.values(value)) {
    if (typeof inner === "object" && inner !== null) deepFreeze(inner as object);
  }
  return Object.freeze(value);
}
