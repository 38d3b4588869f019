/**
 * Limits of a resolved project, checked before all other work on it: some of that work compares every part with every
 * other part, and thousands of parts would block the daemon for minutes.
 */
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { JsonObject } from "../../lib/json.ts";
import { requireNoExcess, tooLong } from "../containers/container-policy.ts";
import { invalid } from "./compose-sources.ts";
import { listOf, recordOf } from "./compose-values.ts";
import { volumesServices } from "./service-mounts.ts";
import { copiesOf } from "./project-networks.ts";
import { countPorts, documentPorts } from "./service-ports.ts";

/** Maximum numbers of parts of a project, and of mounts of a service. */
interface ProjectBounds {
  readonly services: number;
  readonly networks: number;
  readonly volumes: number;
  readonly configs: number;
  readonly secrets: number;
  readonly mounts: number;
}

/** Limits of root's projects. */
const rootBounds: ProjectBounds = {
  ...{ services: 1_024, networks: 1_024, volumes: 1_024, configs: 1_024, secrets: 1_024 },
  mounts: 512,
};
/** Limits of regular users' projects. The engine runs processes for services, networks and volumes. */
const userBounds: ProjectBounds = {
  ...{ services: 128, networks: 32, volumes: 64, configs: 1_024, secrets: 1_024 },
  mounts: 64,
};

/** Maximum number of entries in `volumes_from` of a service, and of mounts that all services have by it together. */
const maxSources = 64;
const maxShared = 8_192;

/** Limit of the published ports of a user's project: the engine runs a process for each. */
const maxUserPorts = 512;

/** @throws SvcError `denied` for a regular user's project, `package_invalid` for root's */
export function requireFewParts(document: JsonObject, file: string, isRoots: boolean): void {
  const { mounts: maxMounts, ...maxOf } = isRoots ? rootBounds : userBounds;
  const requireFew = (subject: string, count: number, max: number, what: string): void => {
    if (count <= max) return;
    const excess = `has ${count} ${what}, more than ${max}`;
    if (isRoots) throw invalid(file, `${subject} ${excess}; use fewer`);
    requireNoExcess(subject, [excess]);
  };
  for (const [section, max] of Object.entries(maxOf)) {
    requireFew("the compose file", countParts(document, section), max, section);
  }
  const services = recordOf(document["services"]);
  for (const [name, service] of Object.entries(services).map(
    ([key, value]) => [key, recordOf(value)] as const,
  )) {
    requireFew(`service "${name}"`, countMounts(service), maxMounts, "mounts");
    requireFew(
      `service "${name}"`,
      listOf(service["volumes_from"]).length,
      maxSources,
      "entries in volumes_from",
    );
  }
  let shared = 0;
  for (const [name, service] of Object.entries(services)) {
    const mounts = countWithShared(recordOf(service), services, maxMounts);
    requireFew(`service "${name}"`, mounts, maxMounts, "mounts");
    shared += mounts - countMounts(recordOf(service));
    requireFew("the compose file", shared, maxShared, "mounts by volumes_from");
  }
}

/** Counts at least one for each service in `volumes_from`; stops above `max`. */
function countWithShared(service: JsonObject, services: JsonObject, max: number): number {
  let count = countMounts(service);
  for (const name of volumesServices(service, services)) {
    count += Math.max(1, countMounts(recordOf(services[name])));
    if (count > max) break;
  }
  return count;
}

/** Mounts of a service, including its configs and secrets. */
export function countMounts(service: JsonObject): number {
  return ["volumes", "tmpfs", "configs", "secrets"].reduce(
    (sum, key) => sum + listOf(service[key]).length,
    0,
  );
}

/** Published ports and description bytes of a project beyond the limits of regular users. */
export function excessOfProject(document: JsonObject): string[] {
  const ports = documentPorts(document).reduce((sum, port) => sum + countPorts(port), 0);
  return [
    ...(ports > maxUserPorts ? [`publishes ${ports} ports, more than ${maxUserPorts}`] : []),
    ...tooLong(bytesOfProject(document)),
  ];
}

function bytesOfProject({ services, ...rest }: JsonObject): number {
  return Object.values(recordOf(services)).reduce<number>(
    (sum, service) => sum + descriptionBytes(service) * copiesOf(recordOf(service)),
    descriptionBytes(rest),
  );
}

/** Every project has a default network, declared or not. */
function countParts(document: JsonObject, section: string): number {
  const parts = recordOf(document[section]);
  return Object.keys(section === "networks" ? { default: null, ...parts } : parts).length;
}
