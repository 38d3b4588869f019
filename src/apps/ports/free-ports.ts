/** Free ports for a new app: two apps with the same default port can be installed, and both start. */
import type { JsonObject } from "../../lib/json.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { resolvePorts } from "../../packages/settings/settings.ts";
import type { AppsContext } from "../apps-context.ts";
import { movablePorts, nextFree, takenPortNote, type MovablePort } from "./movable-ports.ts";
import { keyOf, type PortKey, type PortReservations } from "./port-reservations.ts";

export interface FreePortsOptions extends Pick<AppsContext, "ports" | "registry"> {
  reservations: Pick<PortReservations, "reserve" | "retain">;
}

/** The owner of the new app, and the uid that it runs as: what they may know of the holder of a port is reported. */
export interface NewOwner {
  readonly ownerUid: number;
  readonly uid: number;
}

/** Ports for an app that is not in the database yet; no other new app gets them until they are disposed of. */
export interface ChosenPorts extends Disposable {
  /** `values` with the ports that were chosen. */
  readonly settings: JsonObject;
  /** One for each port that is not the default, or is in use: `port "web" is 8081, because 8080 is in use by alice`. */
  readonly notes: readonly string[];
}

export class FreePorts {
  readonly #options: FreePortsOptions;
  /** Chosen for apps that are being created. */
  readonly #promised = new Set<PortKey>();
  /** The revision of the registry whose ports are reserved; undefined if some were released since. */
  #reservedRevision: number | undefined;

  constructor(options: FreePortsOptions) {
    this.#options = options;
  }

  /**
   * Chooses the next free port for each setting that gives the number of a port that is in use.
   * @param fixed settings that the user has chosen: they stay, and a note says if the port is in use
   */
  async choose(
    manifest: Pick<Manifest, "settings" | "ports"> & Partial<Pick<Manifest, "runtime">>,
    values: JsonObject,
    owner: NewOwner,
    fixed: ReadonlySet<string> = new Set(),
  ): Promise<ChosenPorts> {
    const inUse = await this.#options.ports.inUse();
    const settings: JsonObject = { ...values };
    const notes: string[] = [];
    const promised: PortKey[] = [];
    const isTaken = (key: PortKey): boolean => inUse.has(key) || this.#promised.has(key);
    const promise = (keys: readonly PortKey[]): void => {
      for (const key of keys) this.#promised.add(key);
      promised.push(...keys);
    };
    const movable = movablePorts(manifest, values).filter(({ setting }) => !fixed.has(setting));
    for (const port of movable) {
      const chosen = await this.#chooseOne(port, isTaken, promise);
      if (chosen === undefined || chosen === port.port) continue;
      settings[port.setting] = chosen;
      const [first = keyOf({ protocol: "tcp", port: port.port }), ...others] = keysOf(port, port.port);
      const by = await this.#holder([first, ...others].find(isTaken) ?? first, owner);
      notes.push(`port "${port.name}" is ${chosen}, because ${port.port} is in use by ${by}`);
    }
    for (const port of resolvePorts(manifest, settings)) {
      if (promised.includes(keyOf(port)) || !isTaken(keyOf(port))) continue;
      const by = await this.#holder(keyOf(port), owner);
      notes.push(takenPortNote(manifest, settings, port, by));
    }
    return {
      settings,
      notes,
      [Symbol.dispose]: () => {
        for (const key of promised) this.#promised.delete(key);
        this.#reservedRevision = undefined;
      },
    };
  }

  /** Holds the ports of all apps against other daemons, and releases those of removed apps. */
  async reserveDeclared(): Promise<void> {
    const { ports, registry, reservations } = this.#options;
    const { revision } = registry;
    if (revision === this.#reservedRevision) return;
    this.#reservedRevision = revision;
    await reservations.retain(new Set([...ports.declared(), ...this.#promised]));
  }

  /** The port itself if it is free, else the next free one; undefined if all are in use. */
  async #chooseOne(
    port: MovablePort,
    isTaken: (key: PortKey) => boolean,
    promise: (keys: readonly PortKey[]) => void,
  ): Promise<number | undefined> {
    const lost = new Set<PortKey>();
    const isLost = (key: PortKey): boolean => lost.has(key) || isTaken(key);
    for (;;) {
      const own = keysOf(port, port.port);
      const number = own.some(isLost) ? nextFree(port, isLost) : port.port;
      if (number === undefined) return undefined;
      const keys = keysOf(port, number);
      promise(keys);
      const reserved = await Promise.all(keys.map((key) => this.#options.reservations.reserve(key)));
      if (!reserved.includes(false)) return number;
      // Another daemon chose this port at the same moment.
      for (const key of keys) lost.add(key);
    }
  }

  async #holder(key: PortKey, owner: NewOwner): Promise<string> {
    if (this.#promised.has(key)) return "another app";
    const [protocol, port] = key.split("/") as ["tcp" | "udp", string];
    return this.#options.ports.holderOf({ protocol, port: Number(port) }, owner);
  }
}

function keysOf({ protocols }: MovablePort, port: number): PortKey[] {
  return protocols.map((protocol): PortKey => `${protocol}/${port}`);
}
