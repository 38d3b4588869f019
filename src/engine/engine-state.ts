/** The state of the engine's objects in memory, updated by its events, never more than a second old. */
import type { SvcError } from "../errors.ts";
import { noLog, type Log } from "../lib/log.ts";
import { ContainerCache, type ContainerList } from "./container-cache.ts";
import type { ContainerRecord } from "./container-record.ts";
import {
  imageRecord,
  networkRecord,
  volumeRecord,
  type ImageRecord,
  type NetworkRecord,
  type VolumeRecord,
} from "./engine-objects.ts";
import type { DockerEngine } from "./engine.ts";
import type { EngineEvents } from "./events.ts";
import { CachedInventory, type InventoryList } from "./inventory-list.ts";

export type EngineChange =
  /** These containers changed or are gone. */
  | { readonly kind: "containers"; readonly ids: ReadonlySet<string> }
  /** One of these lists changed. */
  | { readonly kind: "images" | "volumes" | "networks" }
  /** The engine is available, and all its containers were loaded again. */
  | { readonly kind: "available" }
  /** The engine is unavailable, and so its state is unknown. */
  | { readonly kind: "unavailable"; readonly error: SvcError };

/** Must not throw. */
type Preparation = (containers: readonly ContainerRecord[]) => Promise<void>;

export interface EngineStateOptions {
  engine: DockerEngine;
  events: EngineEvents;
  /** Unix milliseconds. */
  now?: () => number;
  log?: Pick<Log, "warn">;
}

/** Maximum age of returned state. */
const maxAgeMs = 1_000;
/** How long a read waits for pending events to be applied. */
const catchUpMs = 400;
const retryMs = 1_000;
/** Timeout of each request that a read causes. */
const answerMs = 5_000;

/**
 * Follows the engine from the first read or `start()` on. While the engine is unavailable or hangs, all reads throw
 * SvcError `unavailable` within 5 s.
 */
export class EngineState implements AsyncDisposable {
  readonly #engine: DockerEngine;
  readonly #events: EngineEvents;
  readonly #log: Pick<Log, "warn">;
  readonly #containers: ContainerCache;
  readonly #images: CachedInventory<ImageRecord>;
  readonly #volumes: CachedInventory<VolumeRecord>;
  readonly #networks: CachedInventory<NetworkRecord>;
  readonly #listeners = new Set<(change: EngineChange) => void>();
  readonly #preparations = new Set<Preparation>();
  readonly #disposed = new AbortController();
  readonly #listening: Disposable;
  #syncing: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #syncedGeneration = 0;
  #revision = 0;

  constructor({ engine, events, now = Date.now, log = noLog }: EngineStateOptions) {
    this.#engine = engine;
    this.#events = events;
    this.#log = log;
    const nextRevision = (): number => ++this.#revision;
    this.#containers = new ContainerCache({
      engine,
      now,
      nextRevision,
      onChange: (ids) => {
        // There is nothing to compare with before the first complete list.
        if (this.isAvailable) this.#emit({ kind: "containers", ids });
      },
      onError: (error) => {
        this.#log.warn({ why: String(error) }, "loading all containers again");
        this.#syncedGeneration = 0;
        void this.#resync();
      },
    });
    this.#images = new CachedInventory({ load: () => this.#loadImages(), nextRevision, maxAgeMs });
    this.#volumes = new CachedInventory({ load: () => this.#loadVolumes(), nextRevision, maxAgeMs });
    this.#networks = new CachedInventory({ load: () => this.#loadNetworks(), nextRevision, maxAgeMs });
    this.#listening = events.listen({
      onConnect: () => void this.#resync(),
      onDisconnect: (error) => this.#emit({ kind: "unavailable", error }),
      // Correct earlier reports that the engine does not respond.
      onLateAnswer: () => {
        if (this.isAvailable) this.#emit({ kind: "available" });
      },
      onEvent: ({ type, ...event }) => {
        if (type === "container") this.#containers.onEvent({ type, ...event });
        else if (type === "image") this.#invalidate(this.#images, "images");
        else if (type === "volume") this.#invalidate(this.#volumes, "volumes");
        else if (type === "network") this.#invalidate(this.#networks, "networks");
      },
    });
  }

  /** Starts following; further calls have no effect. */
  start(): void {
    this.#events.start();
  }

  /** Whether `containersNow` returns current state. */
  get isAvailable(): boolean {
    return this.#events.error === undefined && this.#syncedGeneration === this.#events.generation;
  }

  /** Calls `listener` soon after each change, one change at a time; it must not throw. */
  onChange(listener: (change: EngineChange) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /**
   * Runs `preparation` whenever the engine is available again with all its containers; reads and change events wait
   * for it.
   */
  beforeAvailable(preparation: Preparation): Disposable {
    this.#preparations.add(preparation);
    return { [Symbol.dispose]: () => void this.#preparations.delete(preparation) };
  }

  /**
   * Returns all containers, including stopped ones. The list's revision and the revision of the installed apps
   * determine an encoded response.
   * @throws SvcError `unavailable`
   */
  async containers(): Promise<ContainerList> {
    if (!this.isAvailable || this.#events.silentMs >= maxAgeMs) {
      await this.#events.verify();
      if (!this.isAvailable) await (this.#syncing ?? this.#resync());
    } else if (this.#events.silentMs >= maxAgeMs / 2) {
      // Early enough that frequent readers never wait.
      this.#events.verify().catch(() => undefined);
    }
    if (this.#containers.lagMs >= maxAgeMs / 2) await this.#containers.untilCaughtUp(catchUpMs);
    return this.#containers.list();
  }

  /** The containers in memory; `undefined` while their state is unknown. */
  containersNow(): ContainerList | undefined {
    return this.isAvailable ? this.#containers.list() : undefined;
  }

  /** One container in memory by its full ID; `undefined` while its state is unknown. */
  containerNow(id: string): ContainerRecord | undefined {
    return this.isAvailable ? this.#containers.get(id) : undefined;
  }

  /**
   * Loads one container by ID or name, for callers that have just changed it.
   * @returns undefined when there is no such container
   * @throws SvcError `unavailable`
   */
  async refreshContainer(id: string, signal?: AbortSignal): Promise<ContainerRecord | undefined> {
    return this.#containers.refresh(id, signal);
  }

  /** Sorted by ID. @throws SvcError `unavailable` */
  images(): Promise<InventoryList<ImageRecord>> {
    this.start();
    return this.#images.read();
  }

  /** Sorted by name. @throws SvcError `unavailable` */
  volumes(): Promise<InventoryList<VolumeRecord>> {
    this.start();
    return this.#volumes.read();
  }

  /** Sorted by name. @throws SvcError `unavailable` */
  networks(): Promise<InventoryList<NetworkRecord>> {
    this.start();
    return this.#networks.read();
  }

  /** Loads everything again; retries while the engine is reachable but fails. */
  #resync(): Promise<void> {
    clearTimeout(this.#retry);
    const syncing = this.#resyncOnce(this.#events.generation).finally(() => {
      if (this.#syncing === syncing) this.#syncing = undefined;
    });
    this.#syncing = syncing;
    syncing.catch((error: unknown) => {
      if (this.#events.error !== undefined || this.#disposed.signal.aborted) return;
      this.#log.warn({ why: String(error) }, "failed to load the containers of the engine");
      this.#retry = setTimeout(() => void this.#resync(), retryMs).unref();
    });
    return syncing;
  }

  async #resyncOnce(generation: number): Promise<void> {
    for (const list of [this.#images, this.#volumes, this.#networks]) list.invalidate();
    await this.#containers.resync(this.#disposed.signal);
    for (const prepare of this.#preparations) await prepare(this.#containers.list().containers);
    if (generation !== this.#events.generation || generation === this.#syncedGeneration) return;
    this.#syncedGeneration = generation;
    if (this.isAvailable) this.#emit({ kind: "available" });
  }

  #invalidate(list: CachedInventory<unknown>, kind: "images" | "volumes" | "networks"): void {
    list.invalidate();
    this.#emit({ kind });
  }

  #emit(change: EngineChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  async #loadImages(): Promise<ImageRecord[]> {
    const images = await this.#engine.call("list images", (docker) => docker.listImages(), {
      timeoutMs: answerMs,
    });
    return images.map(imageRecord).sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  async #loadVolumes(): Promise<VolumeRecord[]> {
    const { Volumes } = await this.#engine.call("list volumes", (docker) => docker.listVolumes(), {
      timeoutMs: answerMs,
    });
    const volumes = (Volumes as typeof Volumes | null) ?? [];
    return volumes.map(volumeRecord).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #loadNetworks(): Promise<NetworkRecord[]> {
    const networks = await this.#engine.call("list networks", (docker) => docker.listNetworks(), {
      timeoutMs: answerMs,
    });
    return networks.map(networkRecord).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listening[Symbol.dispose]();
    this.#disposed.abort();
    clearTimeout(this.#retry);
    await this.#syncing?.catch(() => undefined);
  }
}
