/** What a container is to any engine: what it gets, without what only svc knows of it, and without its secrets. */
import { isIPv6 } from "node:net";
import { posix } from "node:path";
import type { JsonObject } from "../lib/json.ts";
import { settingsOf, type DockerRuntime, type Manifest } from "../packages/manifest.ts";
import { resolveSettings, type SettingsFile } from "../packages/settings.ts";
import {
  containerEnvironment,
  containerExpander,
  mountPoints,
  namedPlaces,
} from "../runtimes/docker/container-scope.ts";
import { anyAddress, publishedPorts, type PublishOptions } from "../runtimes/published-ports.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { secretTexts } from "../runtimes/secret-texts.ts";

/** An app as the containers that it is. */
export interface Project {
  /** A name that every engine takes: letters, digits and hyphens. */
  readonly name: string;
  readonly id: string;
  readonly version: string;
  readonly workloads: readonly Workload[];
  readonly networks: readonly ProjectNetwork[];
  /** What no engine gets told. */
  readonly notes: readonly string[];
}

export interface ProjectNetwork {
  readonly name: string;
  readonly isInternal: boolean;
  /** It is not the project's. */
  readonly isExternal: boolean;
}

export interface Workload {
  /** A name that every engine takes: letters, digits and hyphens. */
  readonly name: string;
  /** Its service; absent where the app is one container. */
  readonly part?: string;
  /** What the other containers of its app find it by. */
  readonly names: readonly string[];
  /** Names of {@link ProjectNetwork}. */
  readonly networks: readonly string[];
  /** Those that it waits for before it starts. */
  readonly after: readonly Dependency[];
  readonly image: string;
  readonly runtime: Pick<
    DockerRuntime,
    | "user"
    | "workingDir"
    | "privileged"
    | "network"
    | "pid"
    | "ipc"
    | "devices"
    | "groups"
    | "capabilities"
    | "mounts"
  >;
  readonly droppedCapabilities: readonly string[];
  /** It can write to its mounts alone. */
  readonly isReadOnly: boolean;
  /** File systems in memory. */
  readonly inMemory: readonly { readonly path: string; readonly sizeBytes: number | undefined }[];
  readonly entrypoint: readonly string[] | undefined;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Variables whose value is a secret. */
  readonly secretEnv: readonly string[];
  /** With absolute paths in the container; a secret one says nothing of what it holds. */
  readonly files: readonly (SettingsFile & { readonly isSecret: boolean })[];
  /** What must outlive the container; `path` is absolute in it. */
  readonly volumes: readonly WorkloadVolume[];
  readonly ports: readonly WorkloadPort[];
  readonly replicas: number;
  readonly health: Manifest["health"];
  /** Of a check by a command. */
  readonly healthArgv: readonly string[];
  readonly limits: Manifest["limits"];
  readonly stop: Manifest["stop"];
  readonly restart: Manifest["restart"];
}

export interface Dependency {
  /** Of the {@link Workload}. */
  readonly name: string;
  readonly part: string;
  /** What of it, in compose's words: `service_healthy`. */
  readonly condition: string;
}

export interface WorkloadVolume {
  /** Within the app. */
  readonly name: string;
  /** On the engine: the same for all that share it. */
  readonly source: string;
  readonly path: string;
  readonly readOnly: boolean;
}

export interface WorkloadPort {
  readonly name: string;
  readonly protocol: "tcp" | "udp";
  readonly port: number;
  readonly inside: number;
  /** Of the host. */
  readonly address: string;
}

export interface ExportedApp {
  /** The main one first. */
  readonly files: readonly { readonly name: string; readonly content: string }[];
  /** What could not be carried over, or is still to be done. */
  readonly notes: readonly string[];
}

export const dataNote = "its data are not exported: svc backup create makes an archive of them";

/** Stands where a secret belongs. */
export const secretPlaceholder = "REPLACE-ME";

/** An app of the docker runtime. */
export function dockerProject(app: RunnableApp, runtime: DockerRuntime, options: PublishOptions): Project {
  const { manifest } = app;
  const { settings, secrets } = withoutSecrets(app, () => secretPlaceholder);
  const safe = { ...app, settings };
  const expand = containerExpander(safe);
  const { args, files } = resolveSettings(manifest, settings);
  const secretFiles = secretPaths(manifest, secrets);
  const declared = new Map(manifest.ports.map((port) => [port.name, port.containerPort]));
  const env = containerEnvironment(safe, runtime);
  const name = plainName(app.id);
  const volumes = [
    ...manifest.volumes.map((volume) => ({
      name: plainName(volume.name),
      path: posix.normalize(volume.path),
    })),
    ...(namedPlaces(app, runtime).has("data") ? [{ name: "data", path: mountPoints.data }] : []),
  ];
  const workload: Workload = {
    ...{ name, names: [], networks: [], after: [], runtime },
    ...{ droppedCapabilities: [], isReadOnly: false, inMemory: [] },
    image: runtime.image ?? builtImage(app),
    entrypoint: runtime.entrypoint,
    command: [...(runtime.command ?? []).map(expand), ...args],
    env,
    secretEnv: secretVariables(env),
    files: files.map(({ path, content }) => ({
      path: posix.join(mountPoints.data, path),
      content,
      isSecret: secretFiles.has(path),
    })),
    volumes: volumes.map((volume) => ({
      ...volume,
      source: `${name}-${volume.name}`,
      readOnly: false,
    })),
    ports: publishedPorts(safe, options).map((port) => ({
      ...port,
      inside: declared.get(port.name) ?? port.port,
    })),
    replicas: app.placement?.replicas ?? 1,
    health: manifest.health,
    healthArgv: manifest.health?.probe.kind === "exec" ? manifest.health.probe.argv.map(expand) : [],
    limits: manifest.limits,
    stop: manifest.stop,
    restart: manifest.restart,
  };
  return {
    ...{ name, id: app.id, version: app.version, workloads: [workload], networks: [] },
    notes: notesOf(app, runtime, secrets),
  };
}

/** What the image of an app, or of one of its services, may be called elsewhere that is built here. */
export function builtImage({ id, version }: Pick<RunnableApp, "id" | "version">, part = ""): string {
  return `${plainName(part === "" ? id : `${id}-${part}`)}:${plainName(version)}`;
}

export function secretVariables(env: Readonly<Record<string, string>>): string[] {
  return Object.keys(env).filter((name) => env[name]?.includes(secretPlaceholder));
}

/** Paths of files that a secret setting is written into. */
export function secretPaths(manifest: Manifest, secrets: readonly string[]): Set<string> {
  const documents = new Map(settingsOf(manifest));
  return new Set(secrets.flatMap((name) => documents.get(name)?.file?.path ?? []));
}

/** With something else where secrets stand. @param placeholder of a setting, by its name */
export function withoutSecrets(
  app: RunnableApp,
  placeholder: (name: string) => string,
): { settings: JsonObject; secrets: string[] } {
  const secrets = [...secretTexts(app).keys()];
  return {
    settings: { ...app.settings, ...Object.fromEntries(secrets.map((name) => [name, placeholder(name)])) },
    secrets,
  };
}

function notesOf(app: RunnableApp, runtime: DockerRuntime, secrets: readonly string[]): string[] {
  const { manifest } = app;
  const named = namedPlaces(app, runtime);
  return applying(
    secretNotes(secrets),
    runtime.image === undefined &&
      "its image is built from its package: build it, push it, and name it in the manifest",
    (manifest.volumes.length > 0 || named.has("data")) && dataNote,
    named.has("repo") && `it reads its package at ${mountPoints.repo}, which is not exported`,
    app.ownerUid !== 0 && `here it runs as its owner (uid ${app.uid}); there as its image says`,
    ownNotes(manifest),
    runtime.mounts.map(({ source }) => `it mounts ${source} of its host`),
    runtime.devices.map((device) => `it uses the device ${device} of its host`),
  );
}

export function secretNotes(secrets: readonly string[]): string[] {
  return secrets.map(
    (name) => `the secret "${name}" is not exported: put it where ${secretPlaceholder} stands`,
  );
}

/** What svc does for an app, and no other engine. */
export function ownNotes({ backup, migrate }: Manifest): string[] {
  return applying(
    backup !== undefined && "its backup policy is svc's",
    migrate !== undefined && "its migration step is svc's: run it by hand between versions",
  );
}

/** Those of these notes that apply. */
export function applying(...notes: readonly (string | readonly string[] | false)[]): string[] {
  return notes.flatMap((note) => (note === false ? [] : note));
}

/** Where an engine does not wait for it. @param there what it does instead */
export function waitingNote({ part, condition }: Dependency, there: string): string {
  return `here it waits for "${part}" (${condition}); there ${there}, and has to try until it is reached`;
}

/** Said of a service by its name. */
export function noted({ part }: Workload, notes: readonly string[]): string[] {
  return part === undefined ? [...notes] : notes.map((note) => `service "${part}": ${note}`);
}

/** A port as compose and Podman take it. */
export function publishedAs({ address, port, inside, protocol }: Workload["ports"][number]): string {
  const at = address === anyAddress ? "" : `${isIPv6(address) ? `[${address}]` : address}:`;
  return `${at}${port}:${inside}/${protocol}`;
}

/** What of the host it mounts, as compose, Podman and Nomad take it. */
export function mountedAs({ source, target, read_only: readOnly }: DockerRuntime["mounts"][number]): string {
  return `${source}:${target}${readOnly === true ? ":ro" : ""}`;
}

/** Its files, with the names that they have beside what describes it. */
export function handedFiles({ name, files }: Workload): { name: string; path: string; content: string }[] {
  return files.map((file, at) => ({ ...file, name: `${name}-${at}-${posix.basename(file.path)}` }));
}

/** A dollar would be a variable of compose, and of systemd. */
export function literal(text: string): string {
  return text.replaceAll("$", () => "$$");
}

/** Where an engine chooses the addresses itself. */
export function addressNotes({ ports, runtime }: Workload, there: string): string[] {
  return ports
    .filter(({ address }) => address !== anyAddress && runtime.network === "bridge")
    .map(({ port, address }) => `here port ${port} is reached at ${address} alone; there ${there}`);
}

/** As names of Kubernetes are (RFC 1123): 63 characters of a-z, 0-9 and hyphens. */
export function plainName(text: string): string {
  const plain = text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return plain.slice(0, 63).replaceAll(/^-+|-+$/g, "") || "app";
}
