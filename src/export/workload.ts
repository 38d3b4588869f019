/** An engine-neutral description of an app's containers, without secrets and svc's own parts. */
import { isIPv6 } from "node:net";
import { posix } from "node:path";
import type { JsonObject } from "../lib/json.ts";
import { settingsOf, type DockerRuntime, type Manifest } from "../packages/manifest/manifest.ts";
import { resolveSettings, type SettingsFile } from "../packages/settings/settings.ts";
import {
  containerEnvironment,
  containerExpander,
  mountPoints,
  usedPlaceholders,
} from "../runtimes/docker/container-scope.ts";
import { anyAddress, publishedPorts, type PublishOptions } from "../runtimes/containers/published-ports.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { secretTexts } from "../runtimes/secret-texts.ts";

/** The containers of an app, in a form that every export format can write. */
export interface Project {
  /** A name that is valid for every engine: letters, digits and hyphens. */
  readonly name: string;
  readonly id: string;
  readonly version: string;
  readonly workloads: readonly Workload[];
  readonly networks: readonly ProjectNetwork[];
  /** Settings that no engine supports. */
  readonly notes: readonly string[];
}

export interface ProjectNetwork {
  readonly name: string;
  readonly isInternal: boolean;
  /** Whether it is external to the project. */
  readonly isExternal: boolean;
}

export interface Workload {
  /** A name that is valid for every engine: letters, digits and hyphens. */
  readonly name: string;
  /** Service of a compose project; absent for a single-container app. */
  readonly part?: string;
  /** Names by which the app's other containers find it. */
  readonly names: readonly string[];
  /** Names of the project networks that it joins; see {@link ProjectNetwork}. */
  readonly networks: readonly string[];
  /** Workloads that it waits for before it starts. */
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
  /** Whether it can write only to its mounts. */
  readonly isReadOnly: boolean;
  /** In-memory file systems. */
  readonly inMemory: readonly { readonly path: string; readonly sizeBytes: number | undefined }[];
  readonly entrypoint: readonly string[] | undefined;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Variables with a secret value. */
  readonly secretEnv: readonly string[];
  /** With absolute paths in the container; secret files have no content. */
  readonly files: readonly (SettingsFile & { readonly isSecret: boolean })[];
  /** Data that must outlive the container; `path` is absolute. */
  readonly volumes: readonly WorkloadVolume[];
  readonly ports: readonly WorkloadPort[];
  readonly replicas: number;
  readonly health: Manifest["health"];
  /** Arguments of a command health check. */
  readonly healthArgv: readonly string[];
  readonly limits: Manifest["limits"];
  readonly stop: Manifest["stop"];
  readonly restart: Manifest["restart"];
}

export interface Dependency {
  /** Name of the {@link Workload}. */
  readonly name: string;
  readonly part: string;
  /** Condition in compose's terms: `service_healthy`. */
  readonly condition: string;
}

export interface WorkloadVolume {
  /** Name within the app. */
  readonly name: string;
  /** Name on the engine: equal for all workloads that share it. */
  readonly source: string;
  readonly path: string;
  readonly readOnly: boolean;
}

export interface WorkloadPort {
  readonly name: string;
  readonly protocol: "tcp" | "udp";
  readonly port: number;
  readonly inside: number;
  /** Host address. */
  readonly address: string;
}

export interface ExportedApp {
  /** The main file first. */
  readonly files: readonly { readonly name: string; readonly content: string }[];
  /** Parts that were not exported, and steps that remain. */
  readonly notes: readonly string[];
}

export const dataNote = "the app's data is not exported; svc backup create makes an archive of it";

/** Stands for a secret. */
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
    ...(usedPlaceholders(app, runtime).has("data") ? [{ name: "data", path: mountPoints.data }] : []),
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

/** Suggested name, on other hosts, of an image that is built here. */
export function builtImage({ id, version }: Pick<RunnableApp, "id" | "version">, part = ""): string {
  return `${plainName(part === "" ? id : `${id}-${part}`)}:${plainName(version)}`;
}

export function secretVariables(env: Readonly<Record<string, string>>): string[] {
  return Object.keys(env).filter((name) => env[name]?.includes(secretPlaceholder));
}

/** Paths of files that contain secret settings. */
export function secretPaths(manifest: Manifest, secrets: readonly string[]): Set<string> {
  const documents = new Map(settingsOf(manifest));
  return new Set(secrets.flatMap((name) => documents.get(name)?.file?.path ?? []));
}

/** Replaces secrets. @param placeholder of a setting, by its name */
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
  const named = usedPlaceholders(app, runtime);
  return applying(
    secretNotes(secrets),
    runtime.image === undefined &&
      "its image is built from the package; build it, push it, and set it in the manifest",
    (manifest.volumes.length > 0 || named.has("data")) && dataNote,
    named.has("repo") && `it reads its package at ${mountPoints.repo}, which is not exported`,
    app.ownerUid !== 0 && `it runs as its owner here (uid ${app.uid}), but as the user of its image there`,
    ownNotes(manifest),
    runtime.mounts.map(({ source }) => `it mounts ${source} of the host`),
    runtime.devices.map((device) => `it uses the host device ${device}`),
  ).map((note) => noteAbout(undefined, note));
}

export function secretNotes(secrets: readonly string[]): string[] {
  return secrets.map((name) => `the secret "${name}" is not exported; replace ${secretPlaceholder} with it`);
}

/** Features of svc that no other engine has. */
export function ownNotes({ backup, migrate }: Manifest): string[] {
  return applying(
    backup !== undefined && "the app's backup policy works only in svc",
    migrate !== undefined && "the app's migration step works only in svc; run it by hand between versions",
  );
}

/** The notes that apply. */
export function applying(...notes: readonly (string | readonly string[] | false)[]): string[] {
  return notes.flatMap((note) => (note === false ? [] : note));
}

/** Note for an engine that does not wait for the dependency. @param behavior what the workload does instead */
export function waitingNote({ part, condition }: Dependency, behavior: string): string {
  return `it waits for "${part}" (${condition}) here; there ${behavior}, and must retry until the service is reachable`;
}

/** Adds its subject to each note. */
export function noted({ part }: Workload, notes: readonly string[]): string[] {
  return notes.map((note) => noteAbout(part, note));
}

/** A note with its subject instead of a leading "it" or "its". @param part the service; undefined for the app */
export function noteAbout(part: string | undefined, note: string): string {
  const name = part === undefined ? "the app" : `service "${part}"`;
  if (note.startsWith("it ")) return `${name}${note.slice(2)}`;
  if (part !== undefined) return `${name}: ${note}`;
  return note.startsWith("its ") ? `${name}'s${note.slice(3)}` : note;
}

/** A port in the format of compose and Podman. */
export function publishedAs({ address, port, inside, protocol }: Workload["ports"][number]): string {
  const at = address === anyAddress ? "" : `${isIPv6(address) ? `[${address}]` : address}:`;
  return `${at}${port}:${inside}/${protocol}`;
}

/** A host mount in the format of compose, Podman and Nomad. */
export function mountedAs({ source, target, read_only: readOnly }: DockerRuntime["mounts"][number]): string {
  return `${source}:${target}${readOnly === true ? ":ro" : ""}`;
}

/** Its files, with their names beside the exported description. */
export function handedFiles({ name, files }: Workload): { name: string; path: string; content: string }[] {
  return files.map((file, at) => ({ ...file, name: `${name}-${at}-${posix.basename(file.path)}` }));
}

/** Escapes dollars, which begin variables in compose and systemd. */
export function literal(text: string): string {
  return text.replaceAll("$", () => "$$");
}

/** Notes for an engine that chooses the addresses itself. */
export function addressNotes({ ports, runtime }: Workload, reach: string): string[] {
  return ports
    .filter(({ address }) => address !== anyAddress && runtime.network === "bridge")
    .map(({ port, address }) => `port ${port} is reachable only at ${address} here, but ${reach} there`);
}

/** A valid Kubernetes name (RFC 1123): 63 characters of a-z, 0-9 and hyphens. */
export function plainName(text: string): string {
  const plain = text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return plain.slice(0, 63).replaceAll(/^-+|-+$/g, "") || "app";
}
