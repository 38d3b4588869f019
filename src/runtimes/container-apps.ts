/** What the runtimes over the engine have in common: their apps, and what the engine tells of them. */
import { appLabel, storeLabel } from "../docker/attribution.ts";
import { readContainerLog } from "../docker/container-logs.ts";
import type { ContainerRecord } from "../docker/container-record.ts";
import type { EngineChange, EngineState } from "../docker/engine-state.ts";
import type { DockerEngine } from "../docker/engine.ts";
import type { EngineEvents } from "../docker/events.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { ContainerApp, type ContainerAppOptions } from "./container-app.ts";
import { sampleApps } from "./container-usage.ts";
import { limitsOf } from "./limits.ts";
import type { RunnableApp, RuntimeLimit, RuntimeUsage } from "./runtime.ts";

export interface ContainerAppsOptions extends Omit<ContainerAppOptions, "lastLines" | "onChange"> {
  engine: DockerEngine;
  events: EngineEvents;
  state: EngineState;
  log: (message: string, details: Record<string, unknown>) => void;
}

/** The host's kernel may lack the means. */
interface EngineLimits {
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
}

/** Apps that are looked into at once when the engine comes back. */
const observedAtOnce = 8;
const keptLines = 20;
const startSlackMs = 2_000;

export class ContainerApps implements Disposable {
  readonly #options: ContainerAppsOptions;
  readonly #apps = new Map<string, ContainerApp>();
  readonly #untouched = new Set<string>();
  readonly #listeners = new Set<(id: string) => void>();
  readonly #subscriptions: readonly Disposable[];
  #revision = 0;
  /** What the engine says that it can hold containers to. */
  #enforces = { memory: true, cpus: true };

  constructor(options: ContainerAppsOptions) {
    this.#options = options;
    this.#subscriptions = [
      options.state.onChange((change) => this.#take(change)),
      options.events.listen({
        onEvent: ({ type, action, id, attributes }) => {
          if (type !== "container" || action !== "die" || attributes[storeLabel] !== options.storeId) return;
          this.#apps.get(attributes[appLabel] ?? "")?.died(id, Number(attributes["exitCode"] ?? 0));
        },
      }),
    ];
  }

  get revision(): number {
    return this.#revision;
  }

  onChange(listener: (id: string) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  find(id: string): ContainerApp | undefined {
    return this.#apps.get(id);
  }

  /** Before anything is made for an app that is being prepared. */
  begin(id: string): void {
    if (!this.#apps.has(id)) this.#untouched.add(id);
  }

  /** From now on there may be something of the app on the engine. @throws SvcError `unavailable` */
  async reach(id: string): Promise<void> {
    await this.#options.state.containers();
    this.#untouched.delete(id);
  }

  /** True: preparing it came to its end before the engine was asked, so there is nothing to remove. */
  isUntouched(id: string): boolean {
    return this.#untouched.has(id);
  }

  /** Known from now on. */
  of(id: string): ContainerApp {
    this.#untouched.delete(id);
    const known = this.#apps.get(id);
    if (known !== undefined) return known;
    const app = new ContainerApp(id, {
      ...this.#options,
      lastLines: (container) => this.#lastLines(container),
      onChange: () => this.#announce(id),
    });
    this.#apps.set(id, app);
    this.#revision++;
    return app;
  }

  forget(id: string): void {
    this.#untouched.delete(id);
    this.#apps.get(id)?.detach();
    if (this.#apps.delete(id)) this.#revision++;
  }

  /** All containers in one window, each app with the sum of its own. */
  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const running = apps.flatMap(({ id }) => {
      const app = this.#apps.get(id);
      if (app?.status.state !== "RUNNING") return [];
      const ids = app.members.filter(({ state }) => state === "running").map((container) => container.id);
      return [[id, ids] as const];
    });
    return sampleApps(this.#options, new Map(running), signal);
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, this.#enforces);
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
        for (const app of this.#concernedBy(change.ids)) void this.#attempt(app, app.observe());
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

  #concernedBy(containerIds: ReadonlySet<string>): Set<ContainerApp> {
    const concerned = new Set<ContainerApp>();
    for (const app of this.#apps.values()) {
      if (app.members.some(({ id }) => containerIds.has(id))) concerned.add(app);
    }
    for (const id of containerIds) {
      const labels = this.#options.state.containerNow(id)?.labels;
      const app = labels && this.#apps.get(labels[appLabel] ?? "");
      if (app !== undefined) concerned.add(app);
    }
    return concerned;
  }

  async #takeBack(): Promise<void> {
    await mapBounded([...this.#apps.values()], observedAtOnce, (app) => this.#attempt(app, app.engineBack()));
    try {
      const info: unknown = await this.#options.engine.call("describe itself", (docker) => docker.info());
      const { MemoryLimit, CpuCfsQuota } = info as EngineLimits;
      this.#enforces = { memory: MemoryLimit, cpus: CpuCfsQuota };
    } catch (error) {
      this.#options.log("the container engine does not say which limits it enforces", { error });
    }
  }

  /** Whatever comes of it shows in the status of the app. */
  async #attempt(app: ContainerApp, work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#options.log("the containers of an app could not be looked into", { app: app.id, error });
    }
  }

  #announce(id: string): void {
    this.#revision++;
    for (const listener of this.#listeners) listener(id);
  }

  /** Lets go of all apps, which go on. */
  [Symbol.dispose](): void {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    for (const app of this.#apps.values()) app.detach();
    this.#apps.clear();
  }
}
