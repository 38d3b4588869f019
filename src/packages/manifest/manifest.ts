/**
 * A package's manifest after parsing: with defaults, durations in milliseconds, and sizes in bytes. It is plain JSON,
 * so that it can be stored. `manifest.schema.json` describes the author's format.
 */
import type {
  DockerBuildDocument,
  MountDocument,
  ManifestDocument,
  SettingDocument,
  SettingsDocument,
} from "../../../gen/manifest-document.ts";
import type { Permission } from "./permissions.ts";

/** The file in the root of every package. */
export const manifestFileName = "svc.yaml";

export interface Command {
  /** Program and arguments; may contain placeholders. */
  argv: string[];
  /** Relative to the package's root; `"."` is the root. */
  workingDir: string;
  env: Record<string, string>;
  timeoutMs: number;
}

export interface ProcessRuntime {
  kind: "process";
  argv: string[];
  build: Command[];
  env: Record<string, string>;
  /** Relative to the package's root. */
  workingDir: string;
}

export interface DockerRuntime {
  kind: "docker";
  /** Exactly one of `image` and `build` is present. */
  image?: string;
  build?: DockerBuildDocument;
  entrypoint?: string[];
  command?: string[];
  env: Record<string, string>;
  user?: string;
  workingDir?: string;
  privileged: boolean;
  network: "bridge" | "none" | "host";
  pid: "container" | "host";
  ipc: "container" | "host";
  devices: string[];
  /** Numeric IDs of supplementary groups. */
  groups?: number[];
  capabilities: string[];
  mounts: MountDocument[];
}

export interface ComposeRuntime {
  kind: "compose";
  file: string;
  profiles: string[];
  env: Record<string, string>;
}

export interface ServiceRuntime {
  kind: "service";
  /** Exactly one of `argv` and `unit` is present. */
  argv?: string[];
  /** Relative to the package's root. */
  unit?: string;
  /** User to run as instead of the owner. */
  user?: string;
  build: Command[];
  env: Record<string, string>;
  /** Relative to the package's root. */
  workingDir: string;
}

export type Runtime = ProcessRuntime | DockerRuntime | ComposeRuntime | ServiceRuntime;

export interface ManifestPort {
  name: string;
  protocol: "tcp" | "udp";
  /** Exactly one of `default` and `setting` is present. */
  default?: number;
  setting?: string;
  /** Docker only. */
  containerPort?: number;
  /** Address at which containers publish the port: one of both, or neither for the owner's default. */
  address?: string;
  addressSetting?: string;
}

export interface ManifestVolume {
  name: string;
  /** Docker: absolute path in the container. Otherwise: relative to the app's `volumes/`. */
  path: string;
  backup: boolean;
  excludes: string[];
}

export interface HealthCheck {
  probe:
    | { kind: "http"; port: string; path: string }
    | { kind: "tcp"; port: string }
    | { kind: "exec"; argv: string[] };
  startPeriodMs: number;
  intervalMs: number;
  timeoutMs: number;
  retries: number;
}

export interface RestartPolicy {
  policy: "always" | "on-failure" | "never";
  delayMs: number;
  maxDelayMs: number;
  /** 0: unlimited. */
  maxAttempts: number;
  resetAfterMs: number;
}

/** How tasks on a swarm are replaced by those of another version. */
export interface UpgradePolicy {
  /** Absent: depends on ports and data. */
  order?: "start-first" | "stop-first";
  /** Number of tasks that are replaced at the same time. */
  parallel: number;
  /** How long a new task must run. */
  watchMs: number;
}

export interface BackupPolicy {
  trigger?: string;
  storages: string[];
  keep?: number;
  mode: "live" | "pause" | "stop";
  dump?: Command;
  after?: Command;
  restore?: Command;
}

export interface Manifest {
  id: string;
  name: string;
  version: string;
  summary: string;
  homepage: string;
  runtime: Runtime;
  /** In the author's form; absent if the package defines none. */
  settings?: SettingsDocument;
  ports: ManifestPort[];
  volumes: ManifestVolume[];
  health?: HealthCheck;
  stop: { signal: NodeJS.Signals; graceMs: number };
  restart: RestartPolicy;
  limits: { memoryBytes?: number; cpus?: number; openFiles?: number };
  /** Absent: the defaults of {@link UpgradePolicy}. */
  upgrade?: UpgradePolicy;
  backup?: BackupPolicy;
  /** Without a program the app has its own terminal, unless `terminal` is false. `record`: sessions are recorded. */
  console?: { argv?: string[]; terminal?: boolean; record?: boolean };
  permissions: Permission[];
  migrate?: Command;
  /** Handling of build output in a clone; absent: it is kept. */
  clone?: NonNullable<ManifestDocument["clone"]>;
}

/** Whether the app itself runs at a terminal, which attached clients share. */
export function hasOwnTerminal({ console }: Pick<Manifest, "console">): boolean {
  return console !== undefined && console.argv === undefined && console.terminal !== false;
}

/** The settings of a manifest, by name, in the author's order. */
export function settingsOf(manifest: Pick<Manifest, "settings">): [string, SettingDocument][] {
  return Object.entries(manifest.settings?.properties ?? {});
}
