/** Apps that are one container each, on the host's engine. */
import { followContainerLog, readContainerLog } from "../../docker/container-logs.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import type { EngineChange, EngineState } from "../../docker/engine-state.ts";
import type { EngineEvents } from "../../docker/events.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identity.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { requireAllowed } from "../container-policy.ts";
import { sampleApps } from "../container-usage.ts";
import type {
  AppRuntime,
  ImageRuntime,
  LogChunk,
  RunnableApp,
  RuntimeLimit,
  RuntimeStatus,
  RuntimeUsage,
  RuntimeWork,
} from "../runtime.ts";
import { AppContainer } from "./app-container.ts";
import { AppImages, type CredentialsOf } from "./app-images.ts";
import { containerConfig, type ContainerConfig } from "./container-config.ts";
import { createClaims } from "./create-claims.ts";
import { DockerImages } from "./docker-images.ts";

export interface DockerRuntimeOptions {
  engine: DockerEngine;
  events: EngineEvents;
  state: EngineState;
  identities: Identities;
  /** Tells the containers of this installation from those of others on the same engine. */
  storeId: string;
  credentialsOf: CredentialsOf;
  /** A container that ends this soon after its start has failed to start. */
  settleMs: number;
  /** When the host was booted, unix milliseconds. */
  bootedAtMs: number;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
  log: (message: string, details: Record<string, unknown>) => void;
}

/** The host's kernel may lack the means. */
interface EngineLimits {
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
}

/** Containers that are looked into at once when the engine comes back. */
const observedAtOnce = 8;
const keptLines = 20;
const startSlackMs = 2_000;

/** Nothing is asked of the engine before the first app. Operations on one app come one at a time; the caller sees to that. */
export class DockerRuntime implements AppRuntime {
  readonly images: ImageRuntime;
  readonly #options: DockerRuntimeOptions;
  readonly #images: AppImages;
  readonly #apps = new Map<string, AppContainer>();
  readonly #listeners = new Set<(id: string) => void>();
  readonly #subscriptions: Disposable[];
  #revision = 0;
  /** What the engine says that it can hold containers to. */
  #enforces = { memory: true, cpus: true };

  constructor(options: DockerRuntimeOptions) {
    this.#options = options;
    this.#images = new AppImages(options);
    this.images = new DockerImages(this.#images, options.credentialsOf);
    this.#subscriptions = [
      options.state.onChange((change) => this.#take(change)),
      options.events.listen({
        onEvent: ({ type, action, id, attributes }) => {
          if (type !== "container" || action !== "die") return;
          for (const app of this.#apps.values()) app.died(id, Number(attributes["exitCode"] ?? 0));
        },
      }),
    ];
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    await this.#requireAllowed(app, await this.#config(app, ""));
    await this.#images.provide(app, work);
  }

  async settle(app: RunnableApp): Promise<void> {
    const image = await this.#images.local(app);
    const keep = image && (await this.#config(app, image.Id)).release;
    await this.#container(app.id).removeContainers(({ release, isUp }) => release !== keep && !isUp);
    await this.#images.removeBuilt(app, this.#images.reference(app));
  }

  async start(app: RunnableApp): Promise<void> {
    let image = await this.#images.local(app);
    if (image === undefined) {
      // Somebody has removed it.
      await this.#images.provide(app, {});
      image = await this.#images.local(app);
    }
    if (image === undefined) throw new Error(`the image of app "${app.id}" is gone as soon as it was there`);
    const config = await this.#config(app, image.Id);
    await this.#requireAllowed(app, config);
    await this.#container(app.id).start(app, config);
  }

  async waitHealthy(id: string, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const container = this.#apps.get(id);
    if (container === undefined) {
      throw new SvcError("failed_precondition", "app_not_running", `app "${id}" does not run`);
    }
    await container.waitHealthy(timeoutMs, signal);
  }

  async stop(app: RunnableApp): Promise<void> {
    await this.#container(app.id).stop(app);
  }

  async adopt(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
    return this.#container(app.id).adopt(app);
  }

  status(id: string): RuntimeStatus | undefined {
    return this.#apps.get(id)?.status;
  }

  get revision(): number {
    return this.#revision;
  }

  onChange(listener: (id: string) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  async remove(app: RunnableApp): Promise<number> {
    await this.#container(app.id).removeContainers(() => true);
    const freed = await this.#images.removeBuilt(app);
    this.#apps.get(app.id)?.detach();
    if (this.#apps.delete(app.id)) this.#revision++;
    return freed;
  }

  async logs(app: RunnableApp, { tail, signal }: { tail: number; signal?: AbortSignal }): Promise<LogChunk> {
    const container = await this.#container(app.id).logSource();
    if (container === undefined || tail < 1) return { lines: [], truncated: false, missedBytes: 0 };
    return readContainerLog(this.#options.engine, container, { tail, ...(signal && { signal }) });
  }

  /** Ends when the container does. */
  async *followLogs(
    app: RunnableApp,
    { tail, signal }: { tail: number; signal: AbortSignal },
  ): AsyncGenerator<LogChunk, void> {
    const container = await this.#container(app.id).logSource();
    if (container === undefined) return;
    yield* followContainerLog(this.#options.engine, container, { tail, signal });
  }

  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const running = apps.flatMap(({ id }) => {
      const app = this.#apps.get(id);
      return app?.container && app.status.state === "RUNNING" ? [[id, [app.container.id]] as const] : [];
    });
    return sampleApps(this.#options.engine, new Map(running), signal);
  }

  limits({ manifest: { limits } }: RunnableApp): RuntimeLimit[] {
    const all = [
      { name: "memory", value: limits.memoryBytes, enforced: this.#enforces.memory },
      { name: "cpus", value: limits.cpus, enforced: this.#enforces.cpus },
      { name: "open_files", value: limits.openFiles, enforced: true },
    ] as const;
    return all.flatMap(({ value, ...limit }) => (value === undefined ? [] : [{ ...limit, value }]));
  }

  async #config(app: RunnableApp, imageId: string): Promise<ContainerConfig> {
    const { user: owner } = await this.#options.identities.as(app.uid);
    return containerConfig(app, { imageId, owner, storeId: this.#options.storeId });
  }

  async #requireAllowed(app: RunnableApp, { options }: ContainerConfig): Promise<void> {
    const { identities, engine, unprivilegedPortStart } = this.#options;
    await requireAllowed(app, [createClaims(options)], {
      identity: await identities.as(app.uid),
      engineSockets: [engine.socket],
      unprivilegedPortStart,
    });
  }

  #container(id: string): AppContainer {
    const known = this.#apps.get(id);
    if (known !== undefined) return known;
    const container = new AppContainer(id, {
      ...this.#options,
      lastLines: (record) => this.#lastLines(record),
      onChange: () => this.#announce(id),
    });
    this.#apps.set(id, container);
    this.#revision++;
    return container;
  }

  async #lastLines(container: ContainerRecord): Promise<string[]> {
    const { lines } = await readContainerLog(this.#options.engine, container, {
      tail: keptLines,
      // What a process prints at once is older than what the engine takes for its start.
      ...(container.startedAtMs !== undefined && { sinceMs: container.startedAtMs - startSlackMs }),
    });
    return lines.map(({ text }) => text);
  }

  #take(change: EngineChange): void {
    if (this.#apps.size === 0) return;
    switch (change.kind) {
      case "containers":
        for (const app of this.#apps.values()) {
          if (app.concernedBy(change.ids)) void this.#attempt(app, app.observe());
        }
        return;
      case "unavailable":
        for (const app of this.#apps.values()) app.engineLost(change.error);
        return;
      case "available":
        void this.#takeBack();
        return;
      default:
        return;
    }
  }

  async #takeBack(): Promise<void> {
    await mapBounded([...this.#apps.values()], observedAtOnce, (app) => this.#attempt(app, app.engineBack()));
    try {
      const info = (await this.#options.engine.call("describe itself", (docker) =>
        docker.info(),
      )) as EngineLimits;
      this.#enforces = { memory: info.MemoryLimit, cpus: info.CpuCfsQuota };
    } catch (error) {
      this.#options.log("the container engine does not say which limits it enforces", { error });
    }
  }

  /** Whatever comes of it shows in the status of the app. */
  async #attempt(app: AppContainer, work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#options.log("the container of an app could not be looked into", { app: app.id, error });
    }
  }

  #announce(id: string): void {
    this.#revision++;
    for (const listener of this.#listeners) listener(id);
  }

  /** Lets go of all apps, which go on. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    for (const app of this.#apps.values()) app.detach();
    this.#apps.clear();
    await Promise.resolve();
  }
}
