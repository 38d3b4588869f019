/** Parses a service's mounts: `[SOURCE:]TARGET[:MODES]`, or the long form. */
import { posix } from "node:path";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { bytesOf, isSet, listOf, recordOf, textOf, textsOf } from "./compose-values.ts";
import { imagePaths, type ContainerPaths, type TargetedMount } from "../containers/mount-targets.ts";
import type { AppImages } from "../docker/app-images.ts";

export interface ServiceMount {
  /** `bind`, `volume`, `tmpfs` or another type. */
  readonly type: string;
  /** Empty for an anonymous volume. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
  readonly noCopy: boolean;
  /** Size of an in-memory file system. */
  readonly sizeBytes: number | undefined;
}

export function readServiceMount(volume: JsonValue): ServiceMount {
  if (typeof volume !== "string") {
    const { type, source, target, read_only: readOnly, volume: own, tmpfs } = recordOf(volume);
    const { size } = recordOf(tmpfs);
    return {
      ...{ type: textOf(type), source: textOf(source), target: textOf(target), readOnly: readOnly === true },
      noCopy: recordOf(own)["nocopy"] === true,
      sizeBytes: isSet(size) ? bytesOf(size) : undefined,
    };
  }
  const [first = "", second, mode = ""] = volume.split(":");
  const [source, target] = second === undefined ? ["", first] : [first, second];
  const modes = mode.split(",");
  return {
    ...{ type: source.startsWith("/") ? "bind" : "volume", source, target },
    readOnly: modes.includes("ro"),
    noCopy: modes.includes("nocopy"),
    sizeBytes: undefined,
  };
}

/**
 * The service in an entry of `volumes_from`, `SERVICE[:ro|rw]`; empty for a container outside the project. Compose v1
 * prints `service:` before it.
 */
export function volumesService(entry: string): string {
  const name = /^(?:service:)?([^:]+)(?::r[ow])?$/.exec(entry)?.[1] ?? "";
  // `container:ro` may be the container `ro`.
  return ["container", "service"].includes(name) ? "" : name;
}

/** The services whose mounts a service has by `volumes_from`, directly or through another one. */
export function* volumesServices(service: JsonObject, services: JsonObject): Generator<string> {
  const found = new Set<string>();
  const waiting = [service];
  for (const part of waiting) {
    for (const name of textsOf(part["volumes_from"]).map(volumesService)) {
      if (found.has(name) || !Object.hasOwn(services, name)) continue;
      found.add(name);
      waiting.push(recordOf(services[name]));
      yield name;
    }
  }
}

/** Mounts that a service has only by `volumes_from`, as their own services declare them. */
export function sharedMounts(service: JsonObject, services: JsonObject): ServiceMount[] {
  const own = new Set(mountsOf(service).map(({ target }) => posix.resolve("/", target)));
  return [...volumesServices(service, services)]
    .flatMap((name) => mountsOf(recordOf(services[name])))
    .filter(({ target }) => !own.has(posix.resolve("/", target)));
}

function mountsOf(service: JsonObject): ServiceMount[] {
  return listOf(service["volumes"]).map(readServiceMount);
}

/** Parses an entry of a service's `tmpfs`: `TARGET[:size=BYTES,…]`. */
export function readInMemory(entry: string): { target: string; sizeBytes: number | undefined } {
  const [target = "", words = ""] = entry.split(":");
  const size = /(?:^|,)size=([^,]*)/.exec(words)?.[1];
  return { target, sizeBytes: size === undefined ? undefined : bytesOf(size) };
}

/** Options of a service's in-memory file systems, such as `size=64m,mode=1777`. */
export function inMemoryWords(service: JsonObject): string[] {
  const mounts = listOf(service["volumes"]).map(recordOf);
  return [
    ...textsOf(service["tmpfs"]).map((entry) => entry.split(":").slice(1).join(":")),
    ...mounts
      .filter(({ type }) => type === "tmpfs")
      .map(({ tmpfs = null }) => {
        const { size = null } = recordOf(tmpfs);
        return isSet(size) ? `size=${textOf(size)}` : "";
      }),
  ];
}

/** The paths of each service, including those of its image, if it exists here. */
export async function containerPaths(images: AppImages, document: JsonObject): Promise<ContainerPaths[]> {
  const paths: ContainerPaths[] = [];
  const services = recordOf(document["services"]);
  for (const service of Object.values(services).map(recordOf)) {
    const inherited = imagePaths(await images.inspect(textOf(service["image"])));
    const shared: TargetedMount[] = sharedMounts(service, services);
    for (const name of volumesServices(service, services)) {
      shared.push(...imagePaths(await images.inspect(textOf(recordOf(services[name])["image"]))).mounts);
    }
    const inMemory = textsOf(service["tmpfs"]).map((entry) => ({
      ...{ type: "tmpfs", source: "", target: readInMemory(entry).target, readOnly: false },
    }));
    paths.push({
      mounts: [...mountsOf(service), ...inMemory, ...shared, ...inherited.mounts],
      workingDir: textOf(service["working_dir"]) || inherited.workingDir,
    });
  }
  return paths;
}
