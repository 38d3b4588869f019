/** Reads what a resolved compose file asks of the host beside its services: volumes, networks, secrets, configs. */
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import {
  bindOf,
  tooLong,
  volumeDriverAsks,
  type ContainerClaims,
  type HostAsk,
} from "../container-policy.ts";
import { externalName, isSet, oddKeys, recordOf, textOf } from "./compose-values.ts";
import { copiesOf } from "./project-networks.ts";
import { serviceClaims } from "./service-claims.ts";
import { countPorts, documentPorts } from "./service-ports.ts";

/** For users' projects: what the engine has of processes of its own for one. */
const bounds = { services: 128, ports: 512 };

/** The claims of all parts of a project, services first. */
export function projectClaims(document: JsonObject, project: string): ContainerClaims[] {
  const { services, volumes, networks, secrets, configs, version: _, name: __, ...rest } = document;
  const names = new Set(Object.keys(recordOf(services)));
  return [
    ...Object.entries(recordOf(services)).map(([name, service]) =>
      serviceClaims(name, recordOf(service), names),
    ),
    ...parts("volume", volumes, (volume, key) => volumeAsks(volume, `${project}_${key}`)),
    ...parts("network", networks, (network, key) => networkAsks(network, key, `${project}_${key}`)),
    ...fileParts("secret", secrets),
    ...fileParts("config", configs),
    { ...claimsOf("the compose file", []), excess: excessOf(names.size, document) },
    ...oddAsks(rest, [], "privileged").map((ask) => claimsOf("the compose file", [ask])),
  ];
}

function excessOf(services: number, document: JsonObject): string[] {
  const ports = documentPorts(document).reduce((sum, port) => sum + countPorts(port), 0);
  return [
    ...(services > bounds.services ? [`has ${services} services, more than ${bounds.services}`] : []),
    ...(ports > bounds.ports ? [`publishes ${ports} ports, more than ${bounds.ports}`] : []),
    ...tooLong(lengthOf(document)),
  ];
}

function lengthOf({ services, ...rest }: JsonObject): number {
  return Object.values(recordOf(services)).reduce<number>(
    (sum, service) => sum + JSON.stringify(service).length * copiesOf(recordOf(service)),
    JSON.stringify(rest).length,
  );
}

function parts(
  kind: string,
  value: JsonValue | undefined,
  asksOf: (part: JsonObject, key: string) => HostAsk[],
): ContainerClaims[] {
  return Object.entries(recordOf(value)).map(([key, part]) =>
    claimsOf(`${kind} "${key}"`, asksOf(recordOf(part), key)),
  );
}

function volumeAsks(volume: JsonObject, ownName: string): HostAsk[] {
  const { driver, driver_opts: options, ...rest } = volume;
  return [
    ...foreignAsks(rest, ownName, "host_mounts"),
    ...volumeDriverAsks(textOf(driver), recordOf(options)),
    ...oddAsks(rest, ["name", "external", "labels"], "host_mounts"),
  ];
}

/** Those that the engine itself has: the host's, and the one of all containers. */
const engineNetworks = new Set(["host", "none", "bridge", "default"]);

function networkAsks(network: JsonObject, key: string, ownName: string): HostAsk[] {
  const { driver, ...rest } = network;
  const isEngines = engineNetworks.has(externalName(network, key));
  const asks = [
    ...foreignAsks(rest, ownName, isEngines ? "host_network" : "networks"),
    ...oddAsks(rest, ["name", "external", "labels", "internal", "attachable", "enable_ipv6"], "host_network"),
  ];
  if (["", "bridge"].includes(textOf(driver))) return asks;
  return [...asks, { permission: "host_network", what: `has the driver "${textOf(driver)}"` }];
}

/** Another name than compose would give it may be another app's. */
function foreignAsks(part: JsonObject, ownName: string, permission: HostAsk["permission"]): HostAsk[] {
  const name = textOf(part["name"]);
  if (isSet(part["external"])) return [{ permission, what: "is not the app's own" }];
  return name === "" || name === ownName ? [] : [{ permission, what: `has the name "${name}"` }];
}

function oddAsks(part: JsonObject, known: readonly string[], permission: HostAsk["permission"]): HostAsk[] {
  return oddKeys(part, known).map((key) => ({ permission, what: `sets "${key}"` }));
}

/** Secrets and configs are files that the engine mounts, to read. */
function fileParts(kind: string, value: JsonValue | undefined): ContainerClaims[] {
  return Object.entries(recordOf(value)).map(([key, part]) => {
    const { file, name: _, content: __, ...rest } = recordOf(part);
    const binds = file === undefined ? [] : [bindOf(textOf(file), true)];
    return { ...claimsOf(`${kind} "${key}"`, oddAsks(rest, [], "host_mounts")), binds };
  });
}

function claimsOf(subject: string, asks: readonly HostAsk[]): ContainerClaims {
  return { subject, asks, binds: [], hostPorts: [] };
}
