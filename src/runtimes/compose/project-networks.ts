/** Chooses subnets for a project's networks that set none. */
import type { NetworkInspectInfo } from "dockerode";
import { composeNetworkLabel } from "../../engine/attribution.ts";
import { networkRecord } from "../../engine/engine-objects.ts";
import type { JsonObject } from "../../lib/json.ts";
import { labelsOf, type AppNetworks } from "../containers/app-networks.ts";
import { hasPermission, type RunnableApp } from "../runnable-app.ts";
import { externalName, isSet, listOf, pairsOf, recordOf, textOf } from "./compose-values.ts";

/** On networks with a subnet that svc chose: the subnet. Compose recreates a network if its configuration changed. */
const subnetLabel = "svc.subnet";

/** A document whose subnets are reserved until it is disposed of, when the engine has them. */
export interface PlacedDocument extends Disposable {
  readonly document: JsonObject;
}

/**
 * Assigns a subnet to each network to be created without one.
 * @throws SvcError `too_many`, `not_possible`, see {@link AppNetworks.reserve}
 */
export async function withSubnets(
  document: JsonObject,
  app: Pick<RunnableApp, "id" | "ownerUid" | "manifest">,
  networks: AppNetworks,
): Promise<PlacedDocument> {
  const declared: JsonObject = { default: null, ...recordOf(document["networks"]) };
  const existing = new Map(
    (await networks.of(app.id)).map((network) => [labelsOf(network)[composeNetworkLabel] ?? "", network]),
  );
  const withoutSubnet = Object.keys(declared).filter((key) => mayBePlaced(recordOf(declared[key])));
  const subnets = new Map(
    withoutSubnet.flatMap((key): [string, string][] => {
      const subnet = chosenEarlier(existing.get(key));
      return subnet === undefined ? [] : [[key, subnet]];
    }),
  );
  const missing = withoutSubnet.filter((key) => !existing.has(key));
  const containers = containersOf(document);
  const chosen = Object.keys(declared).flatMap((key) => {
    const network = recordOf(declared[key]);
    const own = isOwnBridge(network) ? subnetsOf(network) : [];
    const found = existing.get(key);
    const isUnchanged = found !== undefined && own.join() === networkRecord(found).subnets.join();
    return isUnchanged || own.length === 0 ? [] : [{ subnets: own, replaces: found?.Id }];
  });
  // Root's package may replace a route of the host with this permission.
  const isHostNetwork = hasPermission(app, "host_network");
  const reserved = await networks.reserve(app, {
    count: missing.length,
    containers,
    chosen: isHostNetwork ? [] : chosen,
  });
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

/** The document as it was checked, without the subnets that svc added. */
export function withoutSubnets(document: JsonObject): JsonObject {
  const networks = Object.entries(recordOf(document["networks"])).map(([key, network]) => {
    const { ipam: _, ...plain } = recordOf(network);
    return [key, subnetLabel in pairsOf(plain["labels"]) ? plain : network];
  });
  return { ...document, networks: Object.fromEntries(networks) as JsonObject };
}

/** Creates missing external networks; they remain when the app is removed. */
export async function makeExternal(
  document: JsonObject,
  app: Pick<RunnableApp, "id" | "ownerUid">,
  networks: AppNetworks,
): Promise<void> {
  for (const [key, value] of Object.entries(recordOf(document["networks"]))) {
    const network = recordOf(value);
    if (isSet(network["external"])) await networks.ensureShared(app, externalName(network, key));
  }
}

function mayBePlaced(network: JsonObject): boolean {
  return isOwnBridge(network) && rangesOf(network).length === 0;
}

function isOwnBridge({ external, driver }: JsonObject): boolean {
  return !isSet(external) && ["", "bridge"].includes(textOf(driver));
}

/** The address ranges that a network sets. */
export function rangesOf({ ipam }: JsonObject): JsonObject[] {
  return listOf(recordOf(ipam)["config"])
    .filter((range) => isSet(range))
    .map(recordOf);
}

/** The subnets that a network sets; empty texts for ranges without one. */
export function subnetsOf(network: JsonObject): string[] {
  return rangesOf(network).map(({ subnet = null }) => textOf(subnet));
}

/** The label is not trusted, because the project's author may have written it. */
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

/** Maximum number of simultaneous containers of the project. */
function containersOf(document: JsonObject): number {
  const counts = Object.values(recordOf(document["services"])).map((service) => copiesOf(recordOf(service)));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Maximum number of simultaneous containers of a service. */
export function copiesOf({ scale = null, deploy = null }: JsonObject): number {
  return Math.max(1, Number(textOf(scale)) || 0, Number(textOf(recordOf(deploy)["replicas"])) || 0);
}
