// Generated from src/packages/manifest/manifest.schema.json by src/codegen/manifest-types.ts; `npm run gen` writes it.

interface Extensible {
  [key: `x-${string}`]: unknown;
}

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
  ports?: Array<PortDocument>;
  volumes?: Array<VolumeDocument>;
  health?: HealthDocument;
  stop?: StopDocument;
  restart?: RestartDocument;
  limits?: LimitsDocument;
  upgrade?: UpgradeDocument;
  backup?: BackupDocument;
  console?: boolean | ConsoleDocument;
  permissions?: Array<"privileged" | "host_network" | "host_pid" | "host_ipc" | "devices" | "gpu" | "serial" | "media" | "tun" | "groups" | "networks" | "capabilities" | "host_mounts" | "engine_socket">;
  migrate?: CommandDocument;
  clone?: "copy" | "rebuild";
}

export interface CommandDocument extends Extensible {
  exec: Array<string>;
  working_dir?: string;
  env?: Record<string, string>;
  timeout?: string;
}

export interface ProcessDocument extends Extensible {
  exec: Array<string>;
  build?: Array<CommandDocument>;
  env?: Record<string, string>;
  working_dir?: string;
}

export interface DockerDocument extends Extensible {
  image?: string;
  build?: DockerBuildDocument;
  entrypoint?: Array<string>;
  command?: Array<string>;
  env?: Record<string, string>;
  user?: string;
  working_dir?: string;
  privileged?: boolean;
  network?: "bridge" | "none" | "host";
  pid?: "container" | "host";
  ipc?: "container" | "host";
  devices?: Array<string>;
  groups?: Array<number>;
  capabilities?: Array<string>;
  mounts?: Array<MountDocument>;
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
  profiles?: Array<string>;
  env?: Record<string, string>;
}

export interface ServiceDocument extends Extensible {
  exec?: Array<string>;
  unit?: string;
  user?: string;
  build?: Array<CommandDocument>;
  env?: Record<string, string>;
  working_dir?: string;
}

export interface SettingsDocument extends Extensible {
  type?: "object";
  title?: string;
  description?: string;
  required?: Array<string>;
  properties: Record<string, SettingDocument>;
}

export interface SettingDocument extends Extensible {
  env?: string;
  arg?: string | Array<string>;
  file?: SettingFileDocument;
  secret?: boolean;
  type?: "string" | "integer" | "number" | "boolean" | "array" | "object";
  title?: string;
  description?: string;
  default?: unknown;
  examples?: Array<unknown>;
  enum?: Array<unknown>;
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
  required?: Array<string>;
}

export interface SettingPartDocument extends Extensible {
  type?: "string" | "integer" | "number" | "boolean" | "array" | "object";
  title?: string;
  description?: string;
  default?: unknown;
  enum?: Array<unknown>;
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
  required?: Array<string>;
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
  excludes?: Array<string>;
}

export interface HealthDocument extends Extensible {
  http?: Extensible & { port: string; path?: string; };
  tcp?: Extensible & { port: string; };
  exec?: Array<string>;
  start_period?: string;
  interval?: string;
  timeout?: string;
  retries?: number;
}

export interface StopDocument extends Extensible {
  signal?: "SIGTERM" | "SIGINT" | "SIGQUIT" | "SIGHUP" | "SIGUSR1" | "SIGUSR2";
  grace?: string;
}

export interface UpgradeDocument extends Extensible {
  order?: "start-first" | "stop-first";
  parallel?: number;
  watch?: string;
}

export interface RestartDocument extends Extensible {
  policy?: "always" | "on-failure" | "never";
  delay?: string;
  max_delay?: string;
  max_attempts?: number;
  reset_after?: string;
}

export interface LimitsDocument extends Extensible {
  memory?: string;
  cpus?: number;
  open_files?: number;
}

export interface BackupDocument extends Extensible {
  trigger?: string;
  storages?: Array<string>;
  keep?: number;
  mode?: "live" | "pause" | "stop";
  dump?: CommandDocument;
  after?: CommandDocument;
  restore?: CommandDocument;
}

export interface ConsoleDocument extends Extensible {
  exec?: Array<string>;
  terminal?: boolean;
  record?: boolean;
}
