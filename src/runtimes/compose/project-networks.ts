/** Subnets of svc's own choosing for the networks of a compose project that name none. */
import type { NetworkInspectInfo } from "dockerode";
import { composeNetworkLabel } from "../../docker/attribution.ts";
import { networkRecord } from "../../docker/engine-objects.ts";
import type { JsonObject } from "../../lib/json.ts";
import { labelsOf, type AppNetworks } from "../app-networks.ts";
import { externalName, isSet, listOf, pairsOf, recordOf, textOf } from "./compose-values.ts";

/** On networks whose subnet svc has chosen: that one. Compose makes a network anew whose description is another one. */
const subnetLabel = "svc.subnet";

/** A document whose subnets are held until it is disposed of: by then the engine has them. */
export interface PlacedDocument extends Disposable {
  readonly document: JsonObject;
}

/** Networks that are there stay as they are. */
export async function withSubnets(
  document: JsonObject,
  appId: string,
  networks: AppNetworks,
): Promise<PlacedDocument> {
  const declared: JsonObject = { default: null, ...recordOf(document["networks"]) };
  const existing = new Map(
    (await networks.of(appId)).map((network) => [labelsOf(network)[composeNetworkLabel] ?? "", network]),
  );
  const silent = Object.keys(declared).filter((key) => mayBePlaced(recordOf(declared[key])));
  const subnets = new Map(
    silent.flatMap((key): [string, string][] => {
      const subnet = chosenEarlier(existing.get(key));
      return subnet === undefined ? [] : [[key, subnet]];
    }),
  );
  const missing = silent.filter((key) => !existing.has(key));
  const containers = containersOf(document);
  const reserved = await networks.reserve(missing.map(() => containers));
  for (const [at, subnet] of reserved.subnets.entries()) subnets.set(missing[at] ?? "", subnet);
  const placed = Object.entries(declared).map(([key, network]) => {
    const subnet = subnets.get(key);
    return [key, subnet === undefined ? network : withSubnet(recordOf(network), subnet)];
  });
  return {
    document: { ...document, networks: Object.fromEntries(placed) as JsonObject },
    [Symbol.dispose]: () => reserved[Symbol.dispose](),
  };
}

/** The document as it was checked: without what svc has put into it. */
export function withoutSubnets(document: JsonObject): JsonObject {
  const networks = Object.entries(recordOf(document["networks"])).map(([key, network]) => {
    const { ipam: _, ...plain } = recordOf(network);
    return [key, subnetLabel in pairsOf(plain["labels"]) ? plain : network];
  });
  return { ...document, networks: Object.fromEntries(networks) as JsonObject };
}

/** The names of networks that others are on, too: those that are not there are made, and stay when the app goes. */
export async function makeExternal(document: JsonObject, networks: AppNetworks): Promise<void> {
  for (const [key, value] of Object.entries(recordOf(document["networks"]))) {
    const network = recordOf(value);
    if (isSet(network["external"])) await networks.ensureShared(externalName(network, key));
  }
}

function mayBePlaced({ external, driver, ipam }: JsonObject): boolean {
  if (isSet(external) || !["", "bridge"].includes(textOf(driver))) return false;
  return !listOf(recordOf(ipam)["config"]).some((range) => isSet(range));
}

/** A label alone is not believed: the project's author may have written it. */
function chosenEarlier(network: NetworkInspectInfo | undefined): string | undefined {
  if (network === undefined) return undefined;
  const [subnet, ...others] = networkRecord(network).subnets;
  return others.length === 0 && labelsOf(network)[subnetLabel] === subnet ? subnet : undefined;
}

function withSubnet(network: JsonObject, subnet: string): JsonObject {
  const { ipam, labels } = network;
  return {
    ...network,
    ipam: { ...recordOf(ipam), config: [{ subnet }] },
    labels: { ...pairsOf(labels), [subnetLabel]: subnet },
  };
}

/** How many the project may have at a time. */
function containersOf(document: JsonObject): number {
  const counts = Object.values(recordOf(document["services"])).map((service) => copiesOf(recordOf(service)));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** How many containers of a service there may be at a time. */
export function copiesOf({ scale = null, deploy = null }: JsonObject): number {
  return Math.max(1, Number(textOf(scale)) || 0, Number(textOf(recordOf(deploy)["replicas"])) || 0);
}
