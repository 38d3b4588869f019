/** Determines the host access of a compose file's volumes, networks, secrets and configs. */
import { isPrivateSubnet } from "../../engine/subnets.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { bindOf, type ContainerClaims } from "../containers/container-policy.ts";
import { volumeDriverRequirements, type HostRequirement } from "../containers/host-requirements.ts";
import { labelRequirements, unknownKeyRequirements } from "./claims-draft.ts";
import { externalName, isSet, unknownKeys, recordOf, textOf } from "./compose-values.ts";
import { rangesOf, subnetsOf } from "./project-networks.ts";
import { excessOfProject } from "./project-size.ts";
import { serviceClaims } from "./service-claims.ts";

/** The claims of all parts of a project, services first. */
export function projectClaims(document: JsonObject, project: string): ContainerClaims[] {
  const { services, volumes, networks, secrets, configs, version: _, name: __, ...rest } = document;
  const all = recordOf(services);
  return [
    ...Object.entries(all).map(([name, service]) => serviceClaims(name, recordOf(service), all)),
    ...volumeClaims(recordOf(volumes), project),
    ...networkClaims(recordOf(networks), project),
    ...fileParts("secret", secrets),
    ...fileParts("config", configs),
    { ...claimsOf("the compose file", []), excess: excessOfProject(document) },
    ...unknownKeyRequirements(rest, []).map((requirement) => claimsOf("the compose file", [requirement])),
  ];
}

function volumeClaims(volumes: JsonObject, project: string): ContainerClaims[] {
  return Object.entries(volumes).map(([key, value]) => {
    const volume = recordOf(value);
    return {
      ...claimsOf(`volume "${key}"`, volumeRequirements(volume, `${project}_${key}`)),
      excess: isInMemory(volume) ? ['is in memory (use "tmpfs" of the service instead)'] : [],
    };
  });
}

/** Options of an in-memory file system; others, such as `bind`, would mount something else. */
const inMemoryOption = /^(?:(?:size|nr_inodes|mode|uid|gid)=[\w%]+|ro|rw|noexec|nosuid|nodev|noatime)$/;

/** Whether a volume of the local driver is in memory, and so needs no access to the host. */
function isInMemory({ driver, driver_opts: options }: JsonObject): boolean {
  const { type, device: _, o = "", ...rest } = recordOf(options);
  if (!["", "local"].includes(textOf(driver)) || type !== "tmpfs" || Object.keys(rest).length > 0)
    return false;
  return typeof o === "string" && o.split(",").every((word) => word === "" || inMemoryOption.test(word));
}

function volumeRequirements(volume: JsonObject, ownName: string): HostRequirement[] {
  const { driver, driver_opts: options, ...rest } = volume;
  return [
    ...externalRequirements(rest, ownName, "host_mounts"),
    ...(isInMemory(volume) ? [] : volumeDriverRequirements(textOf(driver), recordOf(options))),
    ...unknownKeyRequirements(rest, ["name", "external", "labels"], "host_mounts"),
    ...labelRequirements(volume["labels"] ?? null),
  ];
}

/** The engine's own networks: the host's, none, and the default bridge. */
const engineNetworks = new Set(["host", "none", "bridge", "default"]);

function networkClaims(networks: JsonObject, project: string): ContainerClaims[] {
  return Object.entries(networks).map(([key, value]) => {
    const network = recordOf(value);
    return {
      ...claimsOf(`network "${key}"`, networkRequirements(network, key, `${project}_${key}`)),
      subnets: subnetsOf(network),
    };
  });
}

/** Keys of an address range, with their effect on the engine's network. */
const rangeKeys: Readonly<Record<string, string>> = {
  aux_addresses: "keeps addresses of the subnet from containers",
  gateway: "is the host's address in the subnet",
  ip_range: "chooses containers' addresses from a part of the subnet",
  subnet: "is the range that the host routes to the network; judged",
};

/** A public subnet would hide servers of the internet from the host. */
function ipamRequirements(network: JsonObject): HostRequirement[] {
  const { driver = null, config: _, ...rest } = recordOf(network["ipam"]);
  const odd = [
    ...unknownKeys(rest, []),
    ...(["", "default"].includes(textOf(driver)) ? [] : ["driver"]),
    ...rangesOf(network).flatMap((range) => unknownKeys(range, Object.keys(rangeKeys))),
  ];
  return [
    ...odd.map((key) => ({ permission: "host_network", what: `sets "${key}" in "ipam"` }) as const),
    ...subnetsOf(network)
      .filter((subnet) => subnet !== "" && !isPrivateSubnet(subnet))
      .map((subnet) => ({ permission: "host_network", what: `has the subnet "${subnet}"` }) as const),
  ];
}

function networkRequirements(network: JsonObject, key: string, ownName: string): HostRequirement[] {
  const { driver, ...rest } = network;
  const isEngines = engineNetworks.has(externalName(network, key));
  const requirements = [
    ...externalRequirements(rest, ownName, isEngines ? "host_network" : "networks"),
    ...unknownKeyRequirements(
      rest,
      ["name", "external", "labels", "internal", "attachable", "enable_ipv6", "ipam"],
      "host_network",
    ),
    ...ipamRequirements(network),
    ...labelRequirements(network["labels"] ?? null),
  ];
  if (["", "bridge"].includes(textOf(driver))) return requirements;
  return [...requirements, { permission: "host_network", what: `has the driver "${textOf(driver)}"` }];
}

/** A name other than compose's default may belong to another app. */
function externalRequirements(
  part: JsonObject,
  ownName: string,
  permission: HostRequirement["permission"],
): HostRequirement[] {
  const name = textOf(part["name"]);
  if (isSet(part["external"])) return [{ permission, what: "is not the app's own" }];
  return name === "" || name === ownName ? [] : [{ permission, what: `has the name "${name}"` }];
}

/** Secrets and configs: the engine mounts `file` read-only; compose copies `content` as root. */
function fileParts(kind: string, value: JsonValue | undefined): ContainerClaims[] {
  return Object.entries(recordOf(value)).map(([key, part]) => {
    const { file, name: _, content = null, ...rest } = recordOf(part);
    const binds = file === undefined ? [] : [bindOf(textOf(file), true)];
    const excess = isSet(content) ? ["has content that root would write into containers"] : [];
    return {
      ...claimsOf(`${kind} "${key}"`, unknownKeyRequirements(rest, [], "host_mounts")),
      binds,
      excess,
    };
  });
}

function claimsOf(subject: string, requirements: readonly HostRequirement[]): ContainerClaims {
  return { subject, requirements, binds: [], hostPorts: [] };
}
