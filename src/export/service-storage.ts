/** Exports the volumes, mounts and files of a service of a compose project. */
import { posix } from "node:path";
import { isInside } from "../lib/paths.ts";
import type { JsonObject } from "../lib/json.ts";
import { checkoutOf } from "../runtimes/app-tree.ts";
import { bytesOf, isSet, listOf, recordOf, textOf, textsOf } from "../runtimes/compose/compose-values.ts";
import { readInMemory, readServiceMount } from "../runtimes/compose/service-mounts.ts";
import type { ResolvedProject } from "../runtimes/capabilities.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { plainName, secretPlaceholder, type WorkloadVolume } from "./workload.ts";

/** The compose project of an app whose services are exported. */
export interface StorageSource {
  readonly app: RunnableApp;
  readonly project: ResolvedProject;
  readonly document: JsonObject;
  /** Files that the app's settings write, by absolute path on this host. */
  readonly written: ReadonlyMap<string, { readonly content: string; readonly isSecret: boolean }>;
  /** Adds a note about something that is not exported. */
  readonly note: (text: string) => void;
}

const secretsDir = "/run/secrets";

export interface ServiceStorage {
  readonly volumes: WorkloadVolume[];
  readonly mounts: { source: string; target: string; read_only?: boolean }[];
  readonly files: { path: string; content: string; isSecret: boolean }[];
  readonly inMemory: { path: string; sizeBytes: number | undefined }[];
}

/** The volumes, mounts and files of a service. Adds notes about those that are not exported. */
export function storageOf(context: StorageSource, service: JsonObject): ServiceStorage {
  const { app, note } = context;
  const project = plainName(app.id);
  const storage: ServiceStorage = {
    volumes: [],
    mounts: [],
    files: configFiles(context, service),
    inMemory: [],
  };
  const { volumes, mounts, files, inMemory } = storage;
  const addVolume = (name: string, path: string, readOnly: boolean): void => {
    const plain = plainName(name);
    volumes.push({ name: plain, source: `${project}-${plain}`.slice(0, 63), path, readOnly });
  };
  for (const { target: path, sizeBytes } of textsOf(service["tmpfs"]).map(readInMemory))
    inMemory.push({ path, sizeBytes });
  if (isSet(service["shm_size"]))
    inMemory.push({ path: "/dev/shm", sizeBytes: bytesOf(service["shm_size"]) });
  for (const volume of listOf(service["volumes"])) {
    const { type, source, target: path, readOnly, sizeBytes } = readServiceMount(volume);
    const file = context.written.get(source) ?? fileOf(context, source);
    const below = isInside(app.directory, source) ? posix.relative(app.directory, source) : "";
    if (type === "tmpfs") inMemory.push({ path, sizeBytes });
    else if (type === "volume") {
      if (source === "") note(`its volume at ${path} is anonymous, so each container there gets a new one`);
      else addVolume(source, path, readOnly);
    } else if (type !== "bind") note(`its mount of ${source} as ${type} is not exported`);
    else if (file !== undefined) files.push({ path, ...file });
    else if (below === "") {
      mounts.push({ source, target: path, ...(readOnly && { read_only: true }) });
      note(`it mounts ${source} of the host`);
    } else if (isInside(checkoutOf(app), below))
      note(
        `it mounts ${posix.relative(checkoutOf(app), below)} of its package at ${path}, which is not exported; include it in an image`,
      );
    else addVolume(below, path, readOnly);
  }
  return storage;
}

function fileOf(
  { project }: StorageSource,
  source: string,
): { content: string; isSecret: boolean } | undefined {
  const content = project.files.get(source);
  return content === undefined ? undefined : { content, isSecret: false };
}

/** Configs and secrets of a service. */
function configFiles(context: StorageSource, service: JsonObject): ServiceStorage["files"] {
  const { document, note } = context;
  return (["configs", "secrets"] as const).flatMap((kind) =>
    listOf(service[kind]).flatMap((value): ServiceStorage["files"] => {
      const { source = value, target = null } = recordOf(value);
      const name = textOf(source);
      const { file, content } = recordOf(recordOf(document[kind])[name]);
      const given = textOf(target) || name;
      const path = given.startsWith("/") ? given : posix.join(kind === "secrets" ? secretsDir : "/", given);
      if (kind === "secrets") {
        note(`its secret "${name}" is not exported; replace ${secretPlaceholder} with it`);
        return [{ path, content: secretPlaceholder, isSecret: true }];
      }
      const text = typeof content === "string" ? content : context.project.files.get(textOf(file));
      if (text !== undefined) return [{ path, content: text, isSecret: false }];
      note(`its config "${name}" is not exported`);
      return [];
    }),
  );
}
