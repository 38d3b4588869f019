/** Limits the containers of a regular user's apps, and the host ports that they publish. */
import { namedObject, type ContainerRecord } from "../../engine/container-record.ts";
import type { EngineState } from "../../engine/engine-state.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { ContainerClaims, Usage } from "./container-policy.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface UserContainersOptions {
  readonly state: Pick<EngineState, "containers">;
  readonly ownership: EngineOwnership;
  /** Usage of apps on a swarm, on all nodes, by app ID. */
  readonly swarmUsage: () => Promise<ReadonlyMap<string, Usage>>;
  /** The owner of an installed app; `undefined` for an unknown app. */
  readonly ownerOf: (appId: string) => number | undefined;
  readonly limits: { readonly maxContainersPerUser: number; readonly maxPublishedPortsPerUser: number };
}

/**
 * Limits for the containers of one user, and of all regular users. svc reads the engine's list of all containers at
 * once, up to 64 MiB; the rest is for root.
 */
const maxDescriptionBytes = { user: 8 * 2 ** 20, users: 32 * 2 ** 20 };

type Owned = Pick<RunnableApp, "id" | "ownerUid">;

export class UserContainers {
  readonly #options: UserContainersOptions;
  /** Apps that are being started, because the engine does not have all their containers yet. */
  readonly #starting = new Map<string, Usage & { readonly ownerUid: number }>();

  constructor(options: UserContainersOptions) {
    this.#options = options;
  }

  /**
   * Counts the containers that an app is about to create, until the result is disposed of, when the engine has them.
   * Root's apps are not counted.
   * @throws SvcError `too_many` with the limit
   */
  async reserve(app: Owned, claims: readonly Pick<ContainerClaims, "uses">[]): Promise<Disposable> {
    const { id, ownerUid } = app;
    if (ownerUid === 0) return { [Symbol.dispose]: () => undefined };
    const { state, swarmUsage } = this.#options;
    const [{ containers: listed }, onSwarm] = await Promise.all([state.containers(), swarmUsage()]);
    const own = sum(claims.flatMap(({ uses }) => uses ?? []));
    // Without an await from here on, so that simultaneous starts see each other.
    const ofUser = this.#others(id, (uid) => uid === ownerUid, listed, onSwarm);
    const ofUsers = this.#others(id, (uid) => uid !== 0, listed, onSwarm);
    this.#requireFew(app, own, ofUser);
    requireShort(id, "your apps", own.descriptionBytes + ofUser.descriptionBytes, maxDescriptionBytes.user);
    requireShort(id, "all users", own.descriptionBytes + ofUsers.descriptionBytes, maxDescriptionBytes.users);
    const starting = { ...own, ownerUid };
    this.#starting.set(id, starting);
    return {
      [Symbol.dispose]: () => {
        if (this.#starting.get(id) === starting) this.#starting.delete(id);
      },
    };
  }

  #requireFew({ id }: Owned, own: Usage, others: Usage): void {
    const { maxContainersPerUser, maxPublishedPortsPerUser } = this.#options.limits;
    for (const [what, key, max, setting] of [
      ["containers", "containers", maxContainersPerUser, "max_containers_per_user"],
      ["published ports", "ports", maxPublishedPortsPerUser, "max_published_ports_per_user"],
    ] as const) {
      if (own[key] + others[key] <= max) continue;
      throw new SvcError(
        "too_many",
        `app "${id}" cannot start: it needs ${own[key]} ${what}, your other apps have ${others[key]}, and [limits] ${setting} is ${max}; ` +
          `stop and remove an app that you do not need, or ask for a higher limit`,
      );
    }
  }

  /** Usage of the matching owners' other apps, including apps that are starting. */
  #others(
    id: string,
    isDesired: (ownerUid: number) => boolean,
    listed: readonly ContainerRecord[],
    onSwarm: ReadonlyMap<string, Usage>,
  ): Usage {
    const { ownership, ownerOf } = this.#options;
    const starting = [...this.#starting].filter(
      ([other, { ownerUid }]) => other !== id && isDesired(ownerUid),
    );
    const byApp = Map.groupBy(listed, (container) => ownership.ownerOf("container", namedObject(container)));
    const isCounted = (other: string): boolean => {
      const ownerUid = ownerOf(other);
      return other !== id && !this.#starting.has(other) && ownerUid !== undefined && isDesired(ownerUid);
    };
    // Tasks of a swarm on this host are containers, too.
    const here = [...byApp].flatMap(([other, containers]) =>
      other !== undefined && isCounted(other) && !onSwarm.has(other) ? containers : [],
    );
    const tasks = [...onSwarm].flatMap(([other, usage]) => (isCounted(other) ? [usage] : []));
    return sum([...starting.map(([, usage]) => usage), ...here.map(usageOf), ...tasks]);
  }
}

/** @param whose the owners of the containers, as in the message */
function requireShort(appId: string, whose: string, bytes: number, max: number): void {
  if (bytes <= max) return;
  const message = `app "${appId}" cannot start: the engine's lists repeat the labels, commands and mounts of containers, and a swarm stores their files; those of ${whose} would use ${bytes} bytes there (limit ${max}); shorten them, or remove an app`;
  throw new SvcError("too_many", message);
}

/** A port that is published at several addresses counts once. */
function usageOf({ ports, descriptionBytes }: Pick<ContainerRecord, "ports" | "descriptionBytes">): Usage {
  const published = ports.flatMap(({ hostPort, protocol }) =>
    hostPort === undefined ? [] : [`${hostPort}/${protocol}`],
  );
  return { containers: 1, ports: new Set(published).size, descriptionBytes };
}

function sum(usages: readonly Usage[]): Usage {
  return {
    containers: usages.reduce((total, { containers }) => total + containers, 0),
    ports: usages.reduce((total, { ports }) => total + ports, 0),
    descriptionBytes: usages.reduce((total, usage) => total + usage.descriptionBytes, 0),
  };
}
