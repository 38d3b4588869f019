/**
 * A manifest as its author writes it. The shape and its bounds are told by `manifest.schema.json`, the one truth;
 * a test holds these types against it.
 */

export interface Extensible {
  [key: `x-${string}`]: unknown;
}

export interface CommandDocument extends Extensible {
  exec: string[];
  working_dir?: string;
  env?: Record<string, string>;
  timeout?: string;
}

export interface ProcessDocument extends Extensible {
  exec: string[];
  build?: CommandDocument[];
  env?: Record<string, string>;
  working_dir?: string;
}

export interface DockerDocument extends Extensible {
  image?: string;
  build?: DockerBuildDocument;
  entrypoint?: string[];
  command?: string[];
  env?: Record<string, string>;
  user?: string;
  working_dir?: string;
  privileged?: boolean;
  network?: "bridge" | "none" | "host";
  pid?: "container" | "host";
  ipc?: "container" | "host";
  devices?: string[];
  groups?: number[];
  capabilities?: string[];
  mounts?: MountDocument[];
}

export interface DockerBuildDocument extends Extensible {
  context?: string;
  dockerfile?: string;
  target?: string;
  args?: Record<string, string>;
}

export interface MountDocument extends Extensible {
  source: string;
  target: string;
  read_only?: boolean;
}

export interface ComposeDocument extends Extensible {
  file: string;
  profiles?: string[];
  env?: Record<string, string>;
}

export interface ServiceDocument extends Extensible {
  exec?: string[];
  unit?: string;
  user?: string;
  build?: CommandDocument[];
  env?: Record<string, string>;
  working_dir?: string;
}

export interface SettingsDocument extends Extensible {
  type?: "object";
  title?: string;
  description?: string;
  required?: string[];
  properties: Record<string, SettingDocument>;
}

export type SettingType = "string" | "integer" | "number" | "boolean" | "array" | "object";

/** A part of a setting: the accepted subset of JSON Schema. */
export interface SettingPartDocument extends Extensible {
  type?: SettingType;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  format?: "date" | "time" | "date-time" | "email" | "hostname" | "ipv4" | "ipv6" | "uri" | "uuid";
  items?: SettingPartDocument;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  properties?: Record<string, SettingPartDocument>;
  required?: string[];
}

export interface SettingDocument extends SettingPartDocument {
  env?: string;
  arg?: string | string[];
  file?: SettingFileDocument;
  secret?: boolean;
  examples?: unknown[];
}

export interface SettingFileDocument extends Extensible {
  path: string;
  pointer?: string;
}

export interface PortDocument extends Extensible {
  name: string;
  protocol?: "tcp" | "udp";
  default?: number;
  setting?: string;
  container_port?: number;
  address?: string;
  address_setting?: string;
}

export interface VolumeDocument extends Extensible {
  name: string;
  path?: string;
  backup?: boolean;
  excludes?: string[];
}

export interface HealthDocument extends Extensible {
  http?: HealthHttpDocument;
  tcp?: HealthTcpDocument;
  exec?: string[];
  start_period?: string;
  interval?: string;
  timeout?: string;
  retries?: number;
}

export interface HealthHttpDocument extends Extensible {
  port: string;
  path?: string;
}

export interface HealthTcpDocument extends Extensible {
  port: string;
}

export interface StopDocument extends Extensible {
  signal?: "SIGTERM" | "SIGINT" | "SIGQUIT" | "SIGHUP" | "SIGUSR1" | "SIGUSR2";
  grace?: string;
}

export interface RestartDocument extends Extensible {
  policy?: "always" | "on-failure" | "never";
  delay?: string;
  max_delay?: string;
  max_attempts?: number;
  reset_after?: string;
}

export interface UpgradeDocument extends Extensible {
  order?: "start-first" | "stop-first";
  parallel?: number;
  watch?: string;
}

export interface LimitsDocument extends Extensible {
  memory?: string;
  cpus?: number;
  open_files?: number;
}

export interface BackupDocument extends Extensible {
  trigger?: string;
  storages?: string[];
  keep?: number;
  mode?: "live" | "pause" | "stop";
  dump?: CommandDocument;
  after?: CommandDocument;
  restore?: CommandDocument;
}

export interface ConsoleDocument extends Extensible {
  exec?: string[];
  terminal?: boolean;
  record?: boolean;
}

export type Permission =
  | "privileged"
  | "host_network"
  | "host_pid"
  | "host_ipc"
  | "devices"
  | "gpu"
  | "serial"
  | "media"
  | "tun"
  | "groups"
  | "networks"
  | "capabilities"
  | "host_mounts"
  | "engine_socket";

export interface ManifestDocument extends Extensible {
  id: string;
  name: string;
  version: string;
  summary?: string;
  homepage?: string;
  process?: ProcessDocument;
  docker?: DockerDocument;
  compose?: ComposeDocument;
  service?: ServiceDocument;
  settings?: SettingsDocument;
  ports?: PortDocument[];
  volumes?: VolumeDocument[];
  health?: HealthDocument;
  stop?: StopDocument;
  restart?: RestartDocument;
  limits?: LimitsDocument;
  upgrade?: UpgradeDocument;
  backup?: BackupDocument;
  console?: boolean | ConsoleDocument;
  permissions?: Permission[];
  migrate?: CommandDocument;
  clone?: CloneWay;
}

export type CloneWay = "copy" | "rebuild";
