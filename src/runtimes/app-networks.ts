/** The networks of apps: one for each, so that containers of two apps never meet, in subnets that svc chooses. */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { NetworkInspectInfo } from "dockerode";
import { appLabels, madeForFilter, type Labels } from "../docker/attribution.ts";
import { unlessGone } from "../docker/engine-errors.ts";
import type { DockerEngine } from "../docker/engine.ts";
import { networkRecord } from "../docker/engine-objects.ts";
import {
  formatSubnet,
  freeSubnet,
  parseSubnet,
  routedSubnets,
  sizeFor,
  type Subnet,
} from "../docker/subnets.ts";

export interface AppNetworksOptions {
  engine: DockerEngine;
  storeId: string;
  /** Where subnets are taken from. */
  pool: Subnet;
}

/** Subnets that nobody else is given until this is disposed of: by then the engine has them. */
export interface ReservedSubnets extends Disposable {
  /** One for each that was wanted, in that order; fewer where the pool is used up. */
  readonly subnets: readonly string[];
}

/** That a network holds which is not one app's. */
const sharedContainers = 60;
const routeTable = "/proc/net/route";

/** One for all runtimes over an engine. Methods throw SvcError `unavailable` while that is away. */
export class AppNetworks {
  readonly #options: AppNetworksOptions;
  readonly #reserved = new Set<Subnet>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: AppNetworksOptions) {
    this.#options = options;
  }

  /** What the network of a one-container app is called; several installations may share an engine. */
  nameOf(appId: string): string {
    const digest = createHash("sha256").update(`${this.#options.storeId}/${appId}`).digest("hex").slice(0, 8);
    return `svc-${appId}-${digest}`;
  }

  /** Has the network of a one-container app be there. */
  async ensure(appId: string): Promise<void> {
    const name = this.nameOf(appId);
    const isMade = await this.#make(name, 1, appLabels(appId, this.#options.storeId));
    if (isMade) await this.#reattach(appId, name);
  }

  /** Has a network be there that is nobody's own: it goes with no app. */
  async ensureShared(name: string): Promise<void> {
    await this.#make(name, sharedContainers, {});
  }

  /** Resolves with false where it is there. */
  async #make(name: string, containers: number, labels: Labels): Promise<boolean> {
    const { engine } = this.#options;
    const found = await unlessGone(
      engine.call(`inspect the network ${name}`, (docker) => docker.getNetwork(name).inspect()),
    );
    if (found !== undefined) return false;
    using reserved = await this.reserve([containers]);
    const [subnet] = reserved.subnets;
    await engine.call(`make the network ${name}`, (docker) =>
      docker.createNetwork({
        Name: name,
        // Two of a name would be made otherwise, and nobody could say which is meant.
        CheckDuplicate: true,
        Driver: "bridge",
        Labels: labels,
        // Without one the engine chooses of its own pools, which hold some thirty.
        ...(subnet !== undefined && { IPAM: { Config: [{ Subnet: subnet }] } }),
      }),
    );
    return true;
  }

  /** Containers that were made before know a network of that name that is gone. */
  async #reattach(appId: string, name: string): Promise<void> {
    const { engine, storeId } = this.#options;
    const options = { all: true, filters: madeForFilter(appId, storeId) };
    const containers = await engine.call(`list the containers of app "${appId}"`, (docker) =>
      docker.listContainers(options),
    );
    for (const { Id, HostConfig } of containers) {
      if (HostConfig.NetworkMode !== name) continue;
      await engine.call(`attach a container to the network ${name}`, async (docker) => {
        const network = docker.getNetwork(name);
        await network.disconnect({ Container: Id, Force: true });
        await network.connect({ Container: Id });
      });
    }
  }

  /** Subnets that neither the engine nor a route of the host uses. @param wanted for how many containers each */
  async reserve(wanted: readonly number[]): Promise<ReservedSubnets> {
    // One after the other: who lists sees what whoever was before has reserved, or made of it.
    const chosen = this.#turn.then(() => this.#choose(wanted));
    this.#turn = chosen.catch(() => undefined);
    const subnets = await chosen;
    return {
      subnets: subnets.map(formatSubnet),
      [Symbol.dispose]: () => {
        for (const subnet of subnets) this.#reserved.delete(subnet);
      },
    };
  }

  async #choose(wanted: readonly number[]): Promise<Subnet[]> {
    const { engine, pool } = this.#options;
    const before = [...this.#reserved];
    const networks = await engine.call("list the networks", (docker) => docker.listNetworks());
    const known = networks.flatMap((network) => networkRecord(network).subnets.map(parseSubnet));
    // A machine without IPv4 has no such table.
    const routes = routedSubnets(await readFile(routeTable, "latin1").catch(() => ""));
    const taken = [
      ...before,
      ...this.#reserved,
      ...routes,
      ...known.filter((subnet) => subnet !== undefined),
    ];
    const chosen: Subnet[] = [];
    for (const containers of wanted) {
      // Twice as many, as an upgrade has old and new ones side by side.
      const subnet = freeSubnet(pool, sizeFor(2 * containers), [...taken, ...chosen]);
      if (subnet !== undefined) chosen.push(subnet);
    }
    for (const subnet of chosen) this.#reserved.add(subnet);
    return chosen;
  }

  /** Those that the engine has of an app. */
  async of(appId: string): Promise<readonly NetworkInspectInfo[]> {
    const { engine, storeId } = this.#options;
    return engine.call(`list the networks of app "${appId}"`, (docker) =>
      docker.listNetworks({ filters: madeForFilter(appId, storeId) }),
    );
  }

  /** They are the app's: whoever else has joined one does not keep it. */
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

/** The labels of a network, whatever the client's types promise. */
export function labelsOf({ Labels: labels }: Pick<NetworkInspectInfo, "Labels">): Labels {
  return (labels as Labels | null | undefined) ?? {};
}
