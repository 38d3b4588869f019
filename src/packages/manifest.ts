/**
 * The manifest of a package as the rest of svc uses it: defaults filled in, durations in milliseconds, sizes in
 * bytes. It is plain JSON, so it can be stored as it is. `manifest.schema.json` says what authors write.
 */
import type {
  DockerBuildDocument,
  MountDocument,
  ManifestDocument,
  SettingDocument,
  SettingsDocument,
} from "../../gen/manifest-document.ts";
import type { Permission } from "./permissions.ts";

/** The file at the root of every package. */
export const manifestFileName = "svc.yaml";

export interface Command {
  /** Program and arguments; may hold placeholders. */
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
  /** Numbers of further groups. */
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
  /** Account that it runs as instead of its owner. */
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
  /** Where containers publish it: one of both, or neither for the owner's default. */
  address?: string;
  addressSetting?: string;
}

export interface ManifestVolume {
  name: string;
  /** Docker: absolute, in the container. Else: relative to the app's `volumes/`. */
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
  /** 0: never gives up. */
  maxAttempts: number;
  resetAfterMs: number;
}

/** How tasks on a swarm are replaced by those of another version. */
export interface UpgradePolicy {
  /** Absent: as ports and data allow. */
  order?: "start-first" | "stop-first";
  /** At a time. */
  parallel: number;
  /** So long a new one has to live. */
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
  /** As the author wrote it; absent when the package defines none. */
  settings?: SettingsDocument;
  ports: ManifestPort[];
  volumes: ManifestVolume[];
  health?: HealthCheck;
  stop: { signal: NodeJS.Signals; graceMs: number };
  restart: RestartPolicy;
  limits: { memoryBytes?: number; cpus?: number; openFiles?: number };
  /** Absent: what {@link UpgradePolicy} has by default. */
  upgrade?: UpgradePolicy;
  backup?: BackupPolicy;
  /** Without a program the app has a terminal of its own, unless `terminal` is false. `record`: what sessions show is kept. */
  console?: { argv?: string[]; terminal?: boolean; record?: boolean };
  permissions: Permission[];
  migrate?: Command;
  /** What a clone does with what was built; absent: as it finds it. */
  clone?: NonNullable<ManifestDocument["clone"]>;
}

/** Whether the app itself runs at a terminal, which those who attach share. */
export function hasOwnTerminal({ console }: Pick<Manifest, "console">): boolean {
  return console !== undefined && console.argv === undefined && console.terminal !== false;
}

/** The settings that a manifest defines, by name, in the author's order. */
export function settingsOf(manifest: Pick<Manifest, "settings">): [string, SettingDocument][] {
  return Object.entries(manifest.settings?.properties ?? {});
}
