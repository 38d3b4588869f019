/**
 * Parses `svc.yaml` without applying its own settings schema. A thousand words take milliseconds: the daemon runs
 * this in the thread of `yaml-thread.ts`.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type {
  CommandDocument,
  ConsoleDocument,
  HealthDocument,
  ManifestDocument,
} from "../../../gen/manifest-document.ts";
import { manifestProblems } from "./manifest-rules.ts";
import type { BackupPolicy, Command, HealthCheck, Manifest, Runtime } from "./manifest.ts";
import { manifestValidator } from "./own-schemas.ts";
import { parseDuration, parseSize } from "./quantities.ts";
import { createShapedReader } from "./shaped-document.ts";
import type { Problem } from "./yaml-document.ts";

/** Limit of a manifest. */
export const maxManifestBytes = 256 * 1024;

const bounds = { maxBytes: maxManifestBytes, maxTokens: 8_000, maxDepth: 32, maxValues: 10_000 };

export interface WrittenManifest {
  readonly manifest: Manifest;
  /** The line of each setting's default. */
  readonly defaultLines: Readonly<Record<string, number>>;
}

export type ManifestText = WrittenManifest | { readonly problems: readonly Problem[] };

export function createManifestReader(): (text: string) => Promise<ManifestText> {
  const readShaped = createShapedReader(manifestValidator, bounds);
  return async (text) => {
    const result = await readShaped(text);
    if ("problems" in result) return result;
    const { document } = result;
    // The type is generated from the schema, which was just checked.
    const written = document.value as unknown as ManifestDocument;
    const rules = manifestProblems(written).map(({ path, message }): Problem => ({
      line: document.lineOf(path),
      message,
    }));
    if (rules.length > 0) return { problems: rules };
    const lines = Object.keys(written.settings?.properties ?? {}).map((name) => [
      name,
      document.lineOf(["settings", "properties", name, "default"]),
    ]);
    return {
      manifest: normalise(written),
      defaultLines: Object.fromEntries(lines) as WrittenManifest["defaultLines"],
    };
  };
}

/** The JSON Schema of `svc.yaml`, for editors. */
export function readManifestSchema(): Promise<string> {
  return readFile(join(import.meta.dirname, "manifest.schema.json"), "utf8");
}

function normalise(written: ManifestDocument): Manifest {
  const { health, backup, clone, console, migrate, settings, stop, restart, limits, upgrade } = written;
  return {
    id: written.id,
    name: written.name,
    version: written.version,
    summary: written.summary ?? "",
    homepage: written.homepage ?? "",
    runtime: runtimeOf(written),
    ...(settings && { settings }),
    ports: (written.ports ?? []).map((port) => ({
      name: port.name,
      protocol: port.protocol ?? "tcp",
      ...defined({
        default: port.default,
        setting: port.setting,
        containerPort: port.container_port,
        address: port.address,
        addressSetting: port.address_setting,
      }),
    })),
    volumes: (written.volumes ?? []).map((volume) => ({
      name: volume.name,
      path: volume.path ?? volume.name,
      backup: volume.backup ?? true,
      excludes: volume.excludes ?? [],
    })),
    ...(health && { health: healthOf(health) }),
    stop: { signal: stop?.signal ?? "SIGTERM", graceMs: duration(stop?.grace, 10_000) },
    restart: {
      policy: restart?.policy ?? "on-failure",
      delayMs: duration(restart?.delay, 1_000),
      maxDelayMs: duration(restart?.max_delay, 60_000),
      maxAttempts: restart?.max_attempts ?? 10,
      resetAfterMs: duration(restart?.reset_after, 600_000),
    },
    limits: defined({
      memoryBytes: limits?.memory === undefined ? undefined : parseSize(limits.memory),
      cpus: limits?.cpus,
      openFiles: limits?.open_files,
    }),
    ...(upgrade && {
      upgrade: {
        parallel: upgrade.parallel ?? 1,
        watchMs: duration(upgrade.watch, 5_000),
        ...defined({ order: upgrade.order }),
      },
    }),
    ...(backup && {
      backup: {
        storages: backup.storages ?? [],
        mode: backup.mode ?? "live",
        ...defined({
          trigger: backup.trigger,
          keep: backup.keep,
          dump: backup.dump && commandOf(backup.dump),
          after: backup.after && commandOf(backup.after),
          restore: backup.restore && commandOf(backup.restore),
        }),
      } satisfies BackupPolicy,
    }),
    ...(console !== undefined && console !== false && { console: consoleOf(console) }),
    permissions: written.permissions ?? [],
    ...(migrate && { migrate: commandOf(migrate) }),
    ...(clone && { clone }),
  };
}

function consoleOf(console: true | ConsoleDocument): NonNullable<Manifest["console"]> {
  if (console === true) return {};
  return defined({ argv: console.exec, terminal: console.terminal, record: console.record });
}

function runtimeOf(written: ManifestDocument): Runtime {
  const { process, docker, compose, service } = written;
  if (process) {
    return {
      kind: "process",
      argv: process.exec,
      build: (process.build ?? []).map(commandOf),
      env: process.env ?? {},
      workingDir: process.working_dir ?? ".",
    };
  }
  if (docker) {
    return {
      kind: "docker",
      env: docker.env ?? {},
      privileged: docker.privileged ?? false,
      network: docker.network ?? "bridge",
      pid: docker.pid ?? "container",
      ipc: docker.ipc ?? "container",
      devices: docker.devices ?? [],
      capabilities: docker.capabilities ?? [],
      mounts: docker.mounts ?? [],
      ...defined({
        image: docker.image,
        build: docker.build,
        groups: docker.groups,
        entrypoint: docker.entrypoint,
        command: docker.command,
        user: docker.user,
        workingDir: docker.working_dir,
      }),
    };
  }
  if (compose) {
    return { kind: "compose", file: compose.file, profiles: compose.profiles ?? [], env: compose.env ?? {} };
  }
  if (service) {
    return {
      kind: "service",
      build: (service.build ?? []).map(commandOf),
      env: service.env ?? {},
      workingDir: service.working_dir ?? ".",
      ...defined({ argv: service.exec, unit: service.unit, user: service.user }),
    };
  }
  throw new TypeError("a manifest without a runtime passed the rules");
}

function commandOf(command: CommandDocument): Command {
  return {
    argv: command.exec,
    workingDir: command.working_dir ?? ".",
    env: command.env ?? {},
    timeoutMs: duration(command.timeout, 600_000),
  };
}

function healthOf(health: HealthDocument): HealthCheck {
  const { http, tcp, exec } = health;
  return {
    probe: http
      ? { kind: "http", port: http.port, path: http.path ?? "/" }
      : tcp
        ? { kind: "tcp", port: tcp.port }
        : { kind: "exec", argv: exec ?? [] },
    startPeriodMs: duration(health.start_period, 10_000),
    intervalMs: duration(health.interval, 10_000),
    timeoutMs: duration(health.timeout, 5_000),
    retries: health.retries ?? 3,
  };
}

function duration(text: string | undefined, defaultMs: number): number {
  return text === undefined ? defaultMs : (parseDuration(text) ?? defaultMs);
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Removes undefined values, for exact optional properties. */
function defined<T extends object>(values: T): Defined<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Defined<T>;
}
