/** Reads images, dependencies and files of the services of a document. */
import type { JsonObject } from "../../lib/json.ts";
import { isSet, listOf, namedParts, recordOf, textOf, textsOf } from "./compose-values.ts";
import { readServiceMount, volumesService } from "./service-mounts.ts";

/** The image of each service, by name. */
export function referencesOf(document: JsonObject): ReadonlyMap<string, string> {
  const services = Object.entries(recordOf(document["services"])).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return new Map(
    services.flatMap(([service, value]): [string, string][] => {
      const image = textOf(recordOf(value)["image"]);
      return image === "" ? [] : [[service, image]];
    }),
  );
}

/** References of the images in a document. */
export function imagesOf(document: JsonObject): string[] {
  return [...new Set(referencesOf(document).values())];
}

/** The services whose successful end other services wait for, such as migrations. */
export function oneShotServices(document: JsonObject): ReadonlySet<string> {
  const needed = Object.values(recordOf(document["services"])).flatMap((service) =>
    namedParts(recordOf(service)["depends_on"]),
  );
  return new Set(
    needed.flatMap(([name, how]) => (how["condition"] === "service_completed_successfully" ? [name] : [])),
  );
}

/** The length of each service's dependency chain; 0 for a service without dependencies. */
export function dependencyDepths(document: JsonObject): ReadonlyMap<string, number> {
  const services = recordOf(document["services"]);
  const depths = new Map<string, number>();
  const measure = (name: string): number => {
    const known = depths.get(name);
    if (known !== undefined) return known;
    // Compose rejects cycles; one must not prevent an app from being stopped.
    depths.set(name, 0);
    const needed = namedParts(recordOf(services[name])["depends_on"]);
    const depth = Math.max(0, ...needed.map(([other]) => 1 + measure(other)));
    depths.set(name, depth);
    return depth;
  };
  for (const name of Object.keys(services)) measure(name);
  return depths;
}

/**
 * Groups of services to create in this order: none waits for the health or the end of another service of its group.
 * docker-compose 1.29 waits for those even if it only creates containers.
 */
export function creationGroups(document: JsonObject): string[][] {
  const services = recordOf(document["services"]);
  const levels = new Map<string, number>();
  const measure = (name: string): number => {
    const known = levels.get(name);
    if (known !== undefined) return known;
    levels.set(name, 0);
    const service = recordOf(services[name]);
    const needed = namedParts(service["depends_on"]).map(([other, how]) => {
      const isWaiting = !["", "service_started"].includes(textOf(how["condition"]));
      return measure(other) + (isWaiting ? 1 : 0);
    });
    const level = Math.max(0, ...needed, ...usedServices(service).map(measure));
    levels.set(name, level);
    return level;
  };
  const groups = Map.groupBy(Object.keys(services), measure);
  return [...groups].toSorted(([a], [b]) => a - b).map(([, group]) => group);
}

/** The services whose containers a service refers to without `depends_on`. */
function usedServices(service: JsonObject): string[] {
  const shared = ["network_mode", "ipc", "pid"].map((key) => textOf(service[key]));
  return [
    ...shared.flatMap((mode) => (mode.startsWith("service:") ? [mode.slice("service:".length)] : [])),
    ...textsOf(service["volumes_from"]).map(volumesService),
    ...textsOf(service["links"]).map((link) => link.replace(/:.*$/, "")),
  ];
}

/**
 * The services to restart after a service, in dependency order: those that use its namespaces, which its end destroyed,
 * and those that depend on it with `restart: true`.
 */
export function restartedWith(document: JsonObject, service: string): string[] {
  const services = Object.entries(recordOf(document["services"])).map(
    ([name, value]) => [name, recordOf(value)] as const,
  );
  const found = new Set([service]);
  for (const current of found) {
    for (const [name, part] of services) if (followsRestart(part, current)) found.add(name);
  }
  found.delete(service);
  return [...found];
}

function followsRestart(service: JsonObject, other: string): boolean {
  const isShared = ["network_mode", "ipc", "pid"].some((key) => service[key] === `service:${other}`);
  return isShared || isSet(recordOf(recordOf(service["depends_on"])[other])["restart"]);
}

/** Names of the services that use the network of another service. */
export function networkSharers(document: JsonObject): string[] {
  return Object.entries(recordOf(document["services"])).flatMap(([name, service]) =>
    textOf(recordOf(service)["network_mode"]).startsWith("service:") ? [name] : [],
  );
}

/** Paths of files that services may mount. */
export function mountedFiles(document: JsonObject): string[] {
  const services = Object.values(recordOf(document["services"]));
  const mounts = services.flatMap((service) => listOf(recordOf(service)["volumes"]).map(readServiceMount));
  const configs = Object.values(recordOf(document["configs"])).map((config) =>
    textOf(recordOf(config)["file"]),
  );
  return [...mounts.filter(({ type }) => type === "bind").map(({ source }) => source), ...configs];
}
