/** What an app is to any engine: what its container gets, without what only svc knows of it, and without its secrets. */
import { isIPv6 } from "node:net";
import { posix } from "node:path";
import { SvcError } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import { settingsOf, type DockerRuntime, type Manifest } from "../packages/manifest.ts";
import { mergeDefaults, resolveSettings, type SettingsFile } from "../packages/settings.ts";
import {
  containerEnvironment,
  containerExpander,
  mountPoints,
  namedPlaces,
} from "../runtimes/docker/container-scope.ts";
import { anyAddress, publishedPorts, type PublishOptions } from "../runtimes/published-ports.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";

export interface Workload {
  readonly id: string;
  /** A name that every engine takes: letters, digits and hyphens. */
  readonly name: string;
  readonly version: string;
  readonly image: string;
  readonly runtime: DockerRuntime;
  readonly entrypoint: readonly string[] | undefined;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Variables whose value is a secret. */
  readonly secretEnv: readonly string[];
  /** With absolute paths in the container; a secret one says nothing of what it holds. */
  readonly files: readonly (SettingsFile & { readonly isSecret: boolean })[];
  /** What must outlive the container; `path` is absolute in it. */
  readonly volumes: readonly { readonly name: string; readonly path: string }[];
  readonly ports: readonly {
    readonly name: string;
    readonly protocol: "tcp" | "udp";
    readonly port: number;
    readonly inside: number;
    /** Of the host. */
    readonly address: string;
  }[];
  readonly replicas: number;
  readonly health: Manifest["health"];
  /** Of a check by a command. */
  readonly healthArgv: readonly string[];
  readonly limits: Manifest["limits"];
  readonly stop: Manifest["stop"];
  readonly restart: Manifest["restart"];
  /** What no engine gets told. */
  readonly notes: readonly string[];
}

export interface ExportedApp {
  /** The main one first. */
  readonly files: readonly { readonly name: string; readonly content: string }[];
  /** What could not be carried over, or is still to be done. */
  readonly notes: readonly string[];
}

/** Stands where a secret belongs. */
export const secretPlaceholder = "REPLACE-ME";

/** @throws SvcError `not_possible` for an app that is not one container */
export function workloadOf(app: RunnableApp, options: PublishOptions): Workload {
  const { manifest } = app;
  const { runtime } = manifest;
  if (runtime.kind !== "docker") {
    const message = `app "${app.id}" runs on the ${runtime.kind} runtime; svc exports packages of the docker runtime`;
    throw new SvcError("not_possible", message);
  }
  const { settings, secrets } = withoutSecrets(app);
  const safe = { ...app, settings };
  const expand = containerExpander(safe);
  const { args, files } = resolveSettings(manifest, settings);
  const documents = new Map(settingsOf(manifest));
  const secretFiles = new Set(secrets.flatMap((name) => documents.get(name)?.file?.path ?? []));
  const declared = new Map(manifest.ports.map((port) => [port.name, port.containerPort]));
  const env = containerEnvironment(safe, runtime);
  return {
    id: app.id,
    name: plainName(app.id),
    version: app.version,
    image: runtime.image ?? `${plainName(app.id)}:${plainName(app.version)}`,
    runtime,
    entrypoint: runtime.entrypoint,
    command: [...(runtime.command ?? []).map(expand), ...args],
    env,
    secretEnv: Object.keys(env).filter((name) => env[name]?.includes(secretPlaceholder)),
    files: files.map(({ path, content }) => ({
      path: posix.join(mountPoints.data, path),
      content,
      isSecret: secretFiles.has(path),
    })),
    volumes: [
      ...manifest.volumes.map(({ name, path }) => ({ name: plainName(name), path: posix.normalize(path) })),
      ...(namedPlaces(app, runtime).has("data") ? [{ name: "data", path: mountPoints.data }] : []),
    ],
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
    notes: notesOf(app, runtime, secrets),
  };
}

function withoutSecrets({ manifest, settings }: RunnableApp): { settings: JsonObject; secrets: string[] } {
  const values = mergeDefaults(manifest, settings);
  const secrets = settingsOf(manifest).flatMap(([name, { secret }]) => {
    const isSet = !["", null, undefined].includes(values[name] as string | null | undefined);
    return secret === true && isSet ? [name] : [];
  });
  return {
    settings: { ...settings, ...Object.fromEntries(secrets.map((name) => [name, secretPlaceholder])) },
    secrets,
  };
}

function notesOf(app: RunnableApp, runtime: DockerRuntime, secrets: readonly string[]): string[] {
  const { manifest } = app;
  const named = namedPlaces(app, runtime);
  return [
    ...secrets.map(
      (name) => `the secret "${name}" is not exported: put it where ${secretPlaceholder} stands`,
    ),
    ...(runtime.image === undefined
      ? ["its image is built from its package: build it, push it, and name it in the manifest"]
      : []),
    ...(manifest.volumes.length > 0 || named.has("data")
      ? ["its data are not exported: svc backup create makes an archive of them"]
      : []),
    ...(named.has("repo") ? [`it reads its package at ${mountPoints.repo}, which is not exported`] : []),
    ...(app.ownerUid === 0 ? [] : [`here it runs as its owner (uid ${app.uid}); there as its image says`]),
    ...(manifest.backup === undefined ? [] : ["its backup policy is svc's"]),
    ...(manifest.migrate === undefined
      ? []
      : ["its migration step is svc's: run it by hand between versions"]),
    ...runtime.mounts.map(({ source }) => `it mounts ${source} of its host`),
    ...runtime.devices.map((device) => `it uses the device ${device} of its host`),
  ];
}

/** A port as compose and Podman take it. */
export function publishedAs({ address, port, inside, protocol }: Workload["ports"][number]): string {
  const at = address === anyAddress ? "" : `${isIPv6(address) ? `[${address}]` : address}:`;
  return `${at}${port}:${inside}/${protocol}`;
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
