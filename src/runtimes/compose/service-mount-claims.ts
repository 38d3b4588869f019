/** Determines what the mounts, configs and secrets of a service request from the host. */
import { posix } from "node:path";
import { isBelow } from "../../lib/paths.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { bindOf } from "../containers/container-policy.ts";
import { listRequirements, propagationRequirements } from "../containers/host-requirements.ts";
import { unknownKeyRequirements, type Draft, type Reader } from "./claims-draft.ts";
import { fileMode, isSet, listOf, unknownKeys, recordOf, textOf, textsOf } from "./compose-values.ts";
import {
  readInMemory,
  readServiceMount,
  sharedMounts,
  volumesServices,
  type ServiceMount,
} from "./service-mounts.ts";

/** The directories of files with a relative target. */
const fileDirectories = { config: "/", secret: "/run/secrets/" } as const;

type FileKind = keyof typeof fileDirectories;

/**
 * Configs and secrets of a service, which are mounted as files. The engine creates missing mount points as root, even
 * inside mounted directories of the host. An in-memory file system is empty and is removed with its container.
 */
export function readFiles(kind: FileKind): Reader {
  return (value, { requirements, excess, fileOwners, service, services }) => {
    const targets = mountTargets(service, sharedMounts(service, services));
    for (const part of listOf(value).map(fileReference)) {
      const { source = null, uid = null, gid = null, mode = null } = part;
      const file = `${kind} "${textOf(source)}"`;
      requirements.push(...unknownKeyRequirements(part, ["source", "target", "uid", "gid", "mode"]));
      fileOwners.push({ file, uid: textOf(uid), gid: textOf(gid) });
      if (mode !== null && !(fileMode(mode) <= 0o777)) {
        requirements.push({
          permission: "privileged",
          what: `gives ${file} the special mode ${textOf(mode)}`,
        });
      }
      excess.push(...excessOfFile(kind, part, targets));
    }
  };
}

/** Checks configs and secrets that a service has by `volumes_from`: the engine mounts them like its own. */
export function requireSharedFilesApart({ excess, service, services }: Draft): void {
  const targets = mountTargets(service, sharedMounts(service, services));
  for (const name of volumesServices(service, services)) {
    const { configs, secrets } = recordOf(services[name]);
    for (const part of listOf(configs).map(fileReference))
      excess.push(...excessOfFile("config", part, targets));
    for (const part of listOf(secrets).map(fileReference))
      excess.push(...excessOfFile("secret", part, targets));
  }
}

function fileReference(reference: JsonValue): JsonObject {
  return typeof reference === "string" ? { source: reference } : recordOf(reference);
}

function excessOfFile(
  kind: FileKind,
  { source = null, target = null }: JsonObject,
  { stored, inMemory }: MountTargets,
): string[] {
  const path = posix.resolve("/", fileDirectories[kind], textOf(target) || textOf(source));
  const mount = stored.find((outer) => isBelow(outer, path)) ?? inMemory.find((same) => same === path);
  return mount === undefined
    ? []
    : [`has ${kind} "${textOf(source)}" at ${path}, inside what it mounts at ${mount}`];
}

interface MountTargets {
  /** Binds, volumes and mounts of unknown types. */
  readonly stored: readonly string[];
  /** In-memory file systems. */
  readonly inMemory: readonly string[];
}

/** Absolute, normalized mount points of a service, without configs and secrets. */
function mountTargets(service: JsonObject, shared: readonly ServiceMount[] = []): MountTargets {
  const mounts = [...listOf(service["volumes"]).map(readServiceMount), ...shared];
  const pathsOf = (targets: readonly string[]): string[] =>
    targets.map((target) => posix.resolve("/", target));
  const isInMemory = ({ type }: ServiceMount): boolean => type === "tmpfs";
  return {
    stored: pathsOf(mounts.filter((mount) => !isInMemory(mount)).map(({ target }) => target)),
    inMemory: pathsOf([
      ...mounts.filter(isInMemory).map(({ target }) => target),
      ...textsOf(service["tmpfs"]).map((entry) => readInMemory(entry).target),
    ]),
  };
}

/** Compose may combine the source of one mount with the options of another mount with the same target. */
export function requireOneMountEach({ excess, service }: Draft): void {
  const { stored, inMemory } = mountTargets(service);
  const targets = [...stored, ...inMemory];
  const seen = new Set<string>();
  const twice = targets.find((target) => {
    const isSeen = seen.has(target);
    seen.add(target);
    return isSeen;
  });
  if (twice !== undefined) excess.push(`mounts twice at ${twice}`);
}

/** The engine chooses between mounts of several services with the same target. */
export function requireOneSharedMountEach({ excess, service, services }: Draft): void {
  const { inMemory } = mountTargets(service);
  const sources = new Map<string, string | undefined>(inMemory.map((target) => [target, undefined]));
  for (const { source, target } of sharedMounts(service, services)) {
    const path = posix.resolve("/", target);
    if (sources.has(path) && sources.get(path) !== source) excess.push(`mounts twice at ${path}`);
    sources.set(path, source);
  }
}

const volumeName = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;
const plainModes = new Set(["", "ro", "rw", "nocopy", "cached", "delegated", "consistent"]);
const selinuxModes = new Set(["z", "Z"]);

export function readVolume(volume: JsonValue, draft: Draft): void {
  if (typeof volume === "string") readShortVolume(volume, draft);
  else readLongVolume(recordOf(volume), draft);
}

function readShortVolume(volume: string, { requirements, binds, excess }: Draft): void {
  const parts = volume.split(":");
  const [source = "", target, mode = ""] = parts;
  // A path without a source: an anonymous volume.
  if (target === undefined && source.startsWith("/")) return;
  const modes = mode.split(",");
  for (const word of modes) {
    if (selinuxModes.has(word) && !volumeName.test(source)) excess.push(relabels(source, word));
    else if (!plainModes.has(word) && !selinuxModes.has(word))
      requirements.push(...propagationRequirements(word));
  }
  if (parts.length > 3) requirements.push({ permission: "host_mounts", what: `mounts "${volume}"` });
  if (!volumeName.test(source)) binds.push(bindOf(source, modes.includes("ro")));
}

/** The engine relabels as root, following paths that the owner may swap during the work. A named volume is the engine's own. */
function relabels(source: string, mode: string): string {
  return `has "${source}" labelled for SELinux by root (write the mount without "${mode}", or mount a named volume with it)`;
}

/** The keys of each kind of mount, with their effect on the engine. */
const mountKeys: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  bind: {
    create_host_path: "makes a missing source as root; svc turns it off",
    propagation: "carries mounts between host and container; judged",
    recursive: "chooses whether mounts below the source come along",
    selinux: "labels the source as root; judged",
  },
  volume: {
    nocopy: "leaves a new volume empty",
    subpath: "mounts a directory of the volume, which the engine opens without leaving the volume",
  },
  tmpfs: { mode: "sets the mode of its root inside", size: "bounds it; judged" },
};

function readLongVolume(volume: JsonObject, { requirements, binds, excess }: Draft): void {
  const { type, source, bind, read_only: readOnly } = volume;
  const kind = textOf(type);
  // Options of another kind are not ignored: with those of a bind, compose mounts differently.
  const known = ["type", "source", "target", "read_only", "consistency", kind];
  // Compose resolves `name:/path:z` to this: the engine labels its own volume.
  const isLabelOnly = Object.keys(recordOf(bind)).join() === "selinux";
  if (kind === "volume" && volumeName.test(textOf(source)) && isLabelOnly) known.push("bind");
  const options = recordOf(volume[kind]);
  const odd = [
    ...unknownKeys(volume, known),
    ...unknownKeys(options, Object.keys(mountKeys[kind] ?? {})).map((key) => `${kind}.${key}`),
  ];
  requirements.push(...listRequirements(odd, "host_mounts", "mounts something with"));
  const path = textOf(source);
  switch (type) {
    case "tmpfs":
      return;
    case "volume":
      if (path !== "" && !volumeName.test(path)) binds.push(bindOf(path, readOnly === true));
      return;
    case "bind": {
      const { propagation = null, selinux = null } = recordOf(bind);
      requirements.push(...propagationRequirements(textOf(propagation)));
      if (isSet(selinux)) excess.push(relabels(path, textOf(selinux)));
      binds.push(bindOf(path, readOnly === true));
      return;
    }
    default:
      requirements.push({ permission: "host_mounts", what: `mounts "${path}" as ${kind}` });
  }
}
