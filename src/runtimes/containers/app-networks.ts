/** Networks of apps: one per app, so that containers of two apps are never connected, in subnets that svc chooses. */
import { readFile } from "node:fs/promises";
import type { NetworkInspectInfo } from "dockerode";
import type { Labels } from "../../engine/attribution.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { networkRecord } from "../../engine/engine-objects.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import {
  formatSubnet,
  freeSubnets,
  isWithin,
  overlaps,
  parseSubnet,
  routedSubnets,
  sizeFor,
  type Subnet,
} from "../../engine/subnets.ts";
import { SvcError } from "../../errors.ts";
import { Limiter } from "../../lib/limiter.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface AppNetworksOptions {
  engine: DockerEngine;
  ownership: EngineOwnership;
  /** Range from which subnets are allocated. */
  pool: Subnet;
  /** Maximum number of networks of a regular user's apps. */
  maxPerUser: number;
  /** The owner of an installed app. */
  ownerOf: (appId: string) => number | undefined;
}

export type NetworkOwner = Pick<RunnableApp, "id" | "ownerUid">;

/** Subnets that no other app gets until this is disposed of, when the engine has created the networks. */
export interface ReservedSubnets extends Disposable {
  /** One per network; fewer for root if the pool is used up. */
  readonly subnets: readonly string[];
}

/** The networks that are about to be created. */
interface NetworkRequest {
  /** Number of networks that get a subnet of the pool. */
  readonly count: number;
  /** Containers per network; 0: count the networks only, because their addresses are not from the pool. */
  readonly containers: number;
  /** Networks with subnets of their own, and the ID of an earlier one that the engine removes for each. */
  readonly chosen?: readonly { readonly subnets: readonly string[]; readonly replaces: string | undefined }[];
}

interface Reservation {
  readonly ownerUid: number;
  /** Networks that are about to be created. */
  readonly count: number;
  /** All subnets: those of `placed`, and those that networks set themselves. */
  readonly subnets: readonly Subnet[];
  /** Subnets of the pool for networks without one. */
  readonly placed: readonly Subnet[];
}

/** The maximum part of the pool for one regular user, and for all of them together. */
const userPart = 1 / 4;
const usersPart = 3 / 4;

/** Capacity of a network that several apps share. */
const sharedContainers = 60;
/** Capacity of the network for a user's builds. */
const buildContainers = 4;
const routeTable = "/proc/net/route";

/**
 * One instance for all runtimes of an engine. Methods throw SvcError `unavailable` while the engine is unreachable.
 */
export class AppNetworks {
  readonly #options: AppNetworksOptions;
  readonly #reserved = new Set<Reservation>();
  /** By owner, so that each reservation sees what earlier ones reserved or created. */
  readonly #slots = new Limiter<number>({ total: 1, perKey: 1 });

  constructor(options: AppNetworksOptions) {
    this.#options = options;
  }

  /** Range of the subnets of regular users' networks. */
  get pool(): Subnet {
    return this.#options.pool;
  }

  /** Name of the network of a one-container app. */
  nameOf(appId: string): string {
    return this.#options.ownership.networkOf(appId);
  }

  /**
   * Creates the network of a one-container app if it is missing.
   * @throws SvcError `too_many`; `not_possible` if a network of that name belongs to another owner
   */
  async ensure(app: NetworkOwner): Promise<void> {
    const { ownership } = this.#options;
    const name = this.nameOf(app.id);
    const found = await this.#make(app, name, 1, ownership.labels("network", app.id));
    if (found === undefined) await this.#reattach(app.id, name);
    else if (!ownership.isOwn("network", app.id, { labels: labelsOf(found) })) {
      const message = `app "${app.id}" cannot start: network ${name} exists and does not belong to the app; remove it: docker network rm ${name}`;
      throw new SvcError("not_possible", message);
    }
  }

  /**
   * Creates a network for several apps if it is missing; it remains when they are removed. Only root's apps use such
   * networks.
   */
  async ensureShared(app: NetworkOwner, name: string): Promise<void> {
    await this.#make(app, name, sharedContainers, {});
  }

  /** Creates the network of a user's image builds if it is missing. @throws SvcError `too_many` */
  async ensureForBuilds(app: NetworkOwner, name: string): Promise<void> {
    await this.#make(app, name, buildContainers, {});
  }

  /** Resolves to the existing network; `undefined` if it was created. */
  async #make(
    app: NetworkOwner,
    name: string,
    containers: number,
    labels: Labels,
  ): Promise<NetworkInspectInfo | undefined> {
    const { engine } = this.#options;
    const found = await unlessGone(
      engine.call(`inspect the network ${name}`, (docker) => docker.getNetwork(name).inspect()),
    );
    if (found !== undefined) return found;
    using reserved = await this.reserve(app, { count: 1, containers });
    const [subnet] = reserved.subnets;
    await engine.call(`create the network ${name}`, (docker) =>
      docker.createNetwork({
        Name: name,
        // Otherwise the engine would create a second network of the same name.
        CheckDuplicate: true,
        Driver: "bridge",
        Labels: labels,
        // Without a subnet the engine chooses from its own pools, which hold about thirty.
        ...(subnet !== undefined && { IPAM: { Config: [{ Subnet: subnet }] } }),
      }),
    );
    return undefined;
  }

  /** Reconnects containers that were created earlier and refer to a removed network of that name. */
  async #reattach(appId: string, name: string): Promise<void> {
    const { engine, ownership } = this.#options;
    const options = { all: true, filters: ownership.filter(appId) };
    const containers = await engine.call(`list the containers of app "${appId}"`, (docker) =>
      docker.listContainers(options),
    );
    for (const { Id, HostConfig, Names: names, Labels: labels } of containers) {
      const isOwn = ownership.isOwn("container", appId, { names, labels });
      if (!isOwn || HostConfig.NetworkMode !== name) continue;
      await engine.call(`attach a container to the network ${name}`, async (docker) => {
        const network = docker.getNetwork(name);
        await network.disconnect({ Container: Id, Force: true });
        await network.connect({ Container: Id });
      });
    }
  }

  /**
   * Reserves subnets that neither the engine nor a route of the host uses.
   * @throws SvcError `too_many` when a regular user has too many networks or addresses; `not_possible` when a chosen
   *   subnet is in use
   */
  async reserve(app: NetworkOwner, request: NetworkRequest): Promise<ReservedSubnets> {
    const reservation = await this.#reserve(app, request);
    return {
      subnets: reservation.placed.map(formatSubnet),
      [Symbol.dispose]: () => void this.#reserved.delete(reservation),
    };
  }

  async #reserve(
    { id, ownerUid }: NetworkOwner,
    { count, containers, chosen = [] }: NetworkRequest,
  ): Promise<Reservation> {
    using _slot = await this.#slots.acquire(ownerUid);
    const { engine, pool } = this.#options;
    const before = [...this.#reserved];
    const all = await engine.call("list the networks", (docker) => docker.listNetworks());
    const others = [...new Set([...before, ...this.#reserved])];
    const replaced = all.filter(({ Id }) => chosen.some(({ replaces }) => replaces === Id));
    const networks = all.filter((network) => !replaced.includes(network));
    // Doubled, because an upgrade runs old and new containers side by side.
    const size = containers === 0 ? 0 : sizeFor(2 * containers);
    const own = chosen.flatMap(({ subnets }) => subnets.map(parseSubnet)).filter(isSubnet);
    const needed = { count: count + chosen.length, addresses: count * size + addressesOf(own) };
    if (ownerUid !== 0) this.#requireShare(id, ownerUid, needed, networks, others);
    if (size === 0) return this.#hold({ ownerUid, count, subnets: [], placed: [] });
    // A host without IPv4 has no route table.
    const routes = routedSubnets(await readFile(routeTable, "latin1").catch(() => ""));
    const replacedSubnets = new Set(replaced.flatMap(subnetsOf).map(formatSubnet));
    const taken = [
      ...others.flatMap(({ subnets }) => subnets),
      ...routes.filter((route) => !replacedSubnets.has(formatSubnet(route))),
      ...networks.flatMap(subnetsOf),
    ];
    for (const [at, subnet] of own.entries()) {
      const other = [...taken, ...own.slice(0, at)].find((one) => overlaps(one, subnet));
      if (other !== undefined) throw subnetInUse(id, subnet, other);
    }
    const placed = freeSubnets(pool, size, count, [...taken, ...own]);
    if (ownerUid !== 0 && placed.length < count) throw poolUsedUp(id, pool);
    return this.#hold({ ownerUid, count: needed.count, subnets: [...own, ...placed], placed });
  }

  #hold(reservation: Reservation): Reservation {
    this.#reserved.add(reservation);
    return reservation;
  }

  /** @throws SvcError `too_many` */
  #requireShare(
    appId: string,
    ownerUid: number,
    needed: { readonly count: number; readonly addresses: number },
    networks: readonly NetworkInspectInfo[],
    reserved: readonly Reservation[],
  ): void {
    const { pool, maxPerUser } = this.#options;
    // A network that was just created is still reserved, and must count only once.
    const reservedSubnets = new Set(reserved.flatMap(({ subnets }) => subnets.map(formatSubnet)));
    const usersNetworks = networks.flatMap((network) => {
      const uid = this.#ownerOf(network);
      const subnets = subnetsOf(network);
      if (
        uid === undefined ||
        uid === 0 ||
        subnets.some((subnet) => reservedSubnets.has(formatSubnet(subnet)))
      )
        return [];
      return [{ ownerUid: uid, count: 1, subnets }];
    });
    const all = [...usersNetworks, ...reserved.filter((reservation) => reservation.ownerUid !== 0)];
    const own = all.filter((reservation) => reservation.ownerUid === ownerUid);
    const count = own.reduce((sum, reservation) => sum + reservation.count, needed.count);
    if (count > maxPerUser) {
      const message = `app "${appId}" cannot create its networks: you would have ${count}, and [limits] max_networks_per_user is ${maxPerUser}; remove an app, or ask for a higher limit`;
      throw new SvcError("too_many", message);
    }
    const poolSize = pool.end - pool.start;
    const { addresses } = needed;
    if (addressesIn(pool, own) + addresses > poolSize * userPart) {
      const message = `app "${appId}" cannot create its networks: yours would use more than a quarter of the addresses of ${formatSubnet(pool)} ([docker] subnet_pool); remove an app, or ask for a larger pool`;
      throw new SvcError("too_many", message);
    }
    if (addressesIn(pool, all) + addresses > poolSize * usersPart) throw poolUsedUp(appId, pool);
  }

  #ownerOf(network: NetworkInspectInfo): number | undefined {
    const { ownership, ownerOf } = this.#options;
    const appId = ownership.ownerOf("network", { labels: labelsOf(network) });
    return appId === undefined ? undefined : ownerOf(appId);
  }

  /** The app's networks on the engine. */
  async of(appId: string): Promise<readonly NetworkInspectInfo[]> {
    const { engine, ownership } = this.#options;
    const networks = await engine.call(`list the networks of app "${appId}"`, (docker) =>
      docker.listNetworks({ filters: ownership.filter(appId) }),
    );
    return networks.filter((network) => ownership.isOwn("network", appId, { labels: labelsOf(network) }));
  }

  /** Removes the app's networks, disconnecting containers of others. */
  async remove(appId: string): Promise<void> {
    const { engine } = this.#options;
    for (const { Id, Name } of await this.of(appId)) {
      await this.#disconnectAll(Id, Name);
      await unlessGone(engine.call(`remove the network ${Name}`, (docker) => docker.getNetwork(Id).remove()));
    }
  }

  async #disconnectAll(id: string, name: string): Promise<void> {
    const { engine } = this.#options;
    const { Containers } = (await engine.call(`inspect the network ${name}`, (docker) =>
      docker.getNetwork(id).inspect(),
    )) as { Containers?: Readonly<Record<string, unknown>> | null };
    for (const container of Object.keys(Containers ?? {})) {
      await engine.call(`disconnect a container from the network ${name}`, (docker) =>
        docker.getNetwork(id).disconnect({ Container: container, Force: true }),
      );
    }
  }
}

/** The labels of a network, which may be missing, unlike the client's type. */
export function labelsOf({ Labels: labels }: Pick<NetworkInspectInfo, "Labels">): Labels {
  return (labels as Labels | null | undefined) ?? {};
}

function subnetsOf(network: NetworkInspectInfo): Subnet[] {
  return networkRecord(network).subnets.map(parseSubnet).filter(isSubnet);
}

function addressesIn(pool: Subnet, reservations: readonly Pick<Reservation, "subnets">[]): number {
  const subnets = reservations.flatMap((reservation) => reservation.subnets);
  return addressesOf(subnets.filter((subnet) => isWithin(subnet, pool)));
}

function addressesOf(subnets: readonly Subnet[]): number {
  return subnets.reduce((sum, { start, end }) => sum + end - start, 0);
}

/** False for IPv6, whose subnets are not from the pool. */
function isSubnet(subnet: Subnet | undefined): subnet is Subnet {
  return subnet !== undefined;
}

function subnetInUse(appId: string, subnet: Subnet, other: Subnet): SvcError {
  const message = `app "${appId}" cannot create its networks: its subnet ${formatSubnet(subnet)} overlaps ${formatSubnet(other)}, which another network or a route of the host uses; choose another subnet in the compose file, or in the setting that it uses`;
  return new SvcError("not_possible", message);
}

function poolUsedUp(appId: string, pool: Subnet): SvcError {
  const message = `app "${appId}" cannot create its networks: the addresses of ${formatSubnet(pool)} ([docker] subnet_pool) that users share are used up; try again when another app is removed, or ask for a larger pool`;
  return new SvcError("too_many", message);
}
