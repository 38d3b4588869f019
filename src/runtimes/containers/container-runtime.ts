/** The common part of the runtimes on the container engine. */
import type { ContainerPrograms } from "../../engine/container-programs.ts";
import { ContainerSampler } from "../../engine/container-sampler.ts";
import { WatchedSizes } from "../../engine/container-attachment.ts";
import { readContainerLog } from "../../engine/container-logs.ts";
import { isUpState, namedObject, type ContainerRecord } from "../../engine/container-record.ts";
import type { EngineChange } from "../../engine/engine-state.ts";
import type { EngineEvents } from "../../engine/events.ts";
import { SvcError } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import type { AppNetworks } from "./app-networks.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { ContainerApp, type ContainerAppOptions } from "./container-app.ts";
import { sampleApps } from "./container-usage.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import type { UserObjects } from "./user-objects.ts";
import type { UserContainers } from "./user-containers.ts";
import { boundAddresses, boundNames } from "./published-ports.ts";
import type { AppRuntime, FollowLogOptions, LogOptions } from "../contract.ts";
import type {
  ImageRuntime,
  PublishedAddresses,
  RuntimeLimit,
  RuntimeUsage,
  RuntimeWork,
  TerminalRequest,
  FreezingRuntime,
  UsageRuntime,
  TerminalRuntime,
  PublishingRuntime,
  EngineRuntime,
  ExternallyStartedRuntime,
} from "../capabilities.ts";
import type { RegistryTransport } from "../../engine/registry-transport.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { openAppTerminal } from "./container-terminals.ts";

export interface ContainerRuntimeOptions extends Omit<
  ContainerAppOptions,
  "lastLines" | "checkAgain" | "replace" | "dependentsOf" | "onChange" | "hasParts"
> {
  events: EngineEvents;
  networks: AppNetworks;
  /** Programs that svc starts in containers for terminals. */
  programs: ContainerPrograms;
  /** How the engine reaches a registry; `host` as in image names. */
  transportOf: (host: string) => Promise<RegistryTransport>;
  /** Default process limit of a regular user's container. */
  usersPidsLimit: number;
  /** Limit of the processes and threads of a regular user, in all containers together. */
  maxUserProcesses: number;
  userContainers: UserContainers;
  userObjects: UserObjects;
  log: Pick<Log, "warn">;
}

/** Limits that the engine enforces, depending on the host's kernel. */
interface EngineLimits {
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
}

/** Concurrent checks of apps when the engine comes back. */
const observedAtOnce = 8;
const maxStatusLines = 20;
const startSlackMs = 2_000;
/** Signals that do not ask a program to end: HUP, USR1, USR2, CONT and STOP. */
const words: ReadonlySet<string> = new Set(["1", "10", "12", "18", "19"]);

/** Sends no request to the engine before the first app. Callers run only one operation per app at a time. */
export abstract class ContainerRuntime extends FollowingRuntime<ContainerApp> implements AppRuntime {
  readonly freezing: FreezingRuntime = this;
  readonly usage: UsageRuntime = this;
  readonly terminals: TerminalRuntime = this;
  readonly publishing: PublishingRuntime = this;
  readonly engine: EngineRuntime = this;
  readonly external: ExternallyStartedRuntime = this;

  abstract readonly images: ImageRuntime;
  /** Whether an app may have several containers. */
  protected abstract readonly hasParts: boolean;
  readonly #options: ContainerRuntimeOptions;
  readonly #sampler: ContainerSampler;
  /** Apps for which nothing was requested from the engine yet. */
  readonly #untouched = new Set<string>();
  readonly #sizes = new WatchedSizes();
  readonly #subscriptions: readonly Disposable[];
  /** Limits that the engine says it enforces. */
  #enforces = { memory: true, cpus: true };

  constructor(options: ContainerRuntimeOptions) {
    super();
    this.#options = options;
    this.#sampler = new ContainerSampler(options);
    this.#subscriptions = [
      options.state.onChange((change) => this.#take(change)),
      options.events.listen({
        onEvent: ({ type, action, id, attributes }) => {
          if (type !== "container") return;
          const { name = "" } = attributes;
          const appId = options.ownership.ownerOf("container", { labels: attributes, names: [name] });
          const app = this.apps.get(appId ?? "");
          if (action === "start") app?.noteStart(id);
          if (action === "kill" && !words.has(attributes["signal"] ?? "")) app?.noteKill(id);
          if (action === "die") app?.noteDeath(id, Number(attributes["exitCode"] ?? 0));
        },
      }),
    ];
  }

  abstract prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  abstract settle(app: RunnableApp): Promise<void>;
  abstract check(app: RunnableApp): Promise<void>;
  /** Like {@link check}, for the app as last started; fast, because it runs before each restart. */
  protected abstract checkAgain(app: RunnableApp): Promise<void>;
  protected abstract launch(app: RunnableApp, work: RuntimeWork): Promise<void>;
  /** Replaces a container, of the app as last started, that the engine cannot start any more. */
  protected abstract replace(app: RunnableApp, container: ContainerRecord): Promise<void>;

  /** The services to restart after one of the app's containers, in order. */
  protected dependentsOf(_app: RunnableApp, _container: ContainerRecord): Promise<readonly string[]> {
    return Promise.resolve([]);
  }
  /** Addresses that the next start publishes. */
  protected abstract toPublish(app: RunnableApp): Promise<PublishedAddresses>;
  protected abstract end(app: RunnableApp): Promise<void>;
  protected abstract clear(app: RunnableApp, keep?: "volumes"): Promise<number>;
  abstract logs(app: RunnableApp, options: LogOptions): Promise<LogChunk>;
  abstract followLogs(app: RunnableApp, options: FollowLogOptions): AsyncIterable<LogChunk>;

  async start(app: RunnableApp, signal?: AbortSignal): Promise<void> {
    this.#detectHang();
    try {
      await this.#whileAvailable(`; app "${app.id}" will start when it is back`, () =>
        this.launch(app, { signal }),
      );
    } catch (error) {
      if (error instanceof SvcError && error.code === "unavailable") {
        this.appOf(app.id).awaitEngine(app, error as SvcError);
      }
      throw error;
    }
  }

  async stop(app: RunnableApp): Promise<void> {
    await this.#whileAvailable(`, so app "${app.id}" could not be stopped; try again when it is back`, () =>
      this.end(app),
    );
  }

  async remove(app: RunnableApp, keep?: "volumes"): Promise<number> {
    return this.#whileAvailable(`, so app "${app.id}" could not be removed`, () => this.clear(app, keep));
  }

  async requireResponse({ id }: RunnableApp): Promise<void> {
    if (!this.isUntouched(id)) await this.#options.state.containers();
  }

  /** Errors while the engine ends are attributed to that end, whatever they look like. @param consequence ends the message */
  async #whileAvailable<T>(consequence: string, work: () => Promise<T>): Promise<T> {
    const { events } = this.#options;
    const { generation } = events;
    try {
      return await work();
    } catch (error) {
      const isAway = events.error !== undefined || (generation > 0 && generation !== events.generation);
      if (!isAway) throw error;
      throw new SvcError("unavailable", `the container engine is not available${consequence}`, {
        cause: error,
      });
    }
  }

  async publishedAt(app: RunnableApp): Promise<PublishedAddresses> {
    const bound = boundAddresses(this.apps.get(app.id)?.members ?? []);
    return bound.size > 0 ? bound : this.toPublish(app);
  }

  boundNames(id: string): ReadonlyMap<string, string> {
    return boundNames(this.apps.get(id)?.members ?? []);
  }

  /** IDs of its running containers. */
  async freezable({ id }: RunnableApp): Promise<string[]> {
    const all = await this.appOf(id).containers.all();
    return all.filter(({ state }) => state === "running").map((container) => container.id);
  }

  async freeze({ id }: RunnableApp, containerIds: readonly string[]): Promise<void> {
    await this.appOf(id).freeze(containerIds);
  }

  async thaw({ id }: RunnableApp, containerIds: readonly string[]): Promise<boolean> {
    return this.appOf(id).thaw(containerIds);
  }

  async reattach(app: RunnableApp, wasCut?: boolean): Promise<"running" | "lost"> {
    return this.appOf(app.id).reattach(app, wasCut);
  }

  /** Starts following the engine, so that the next call has a result. */
  upNow(): ReadonlySet<string> {
    const { state, ownership } = this.#options;
    state.start();
    const up = (state.containersNow()?.containers ?? []).filter((container) => isUpState(container.state));
    return new Set(up.flatMap((container) => ownership.ownerOf("container", namedObject(container)) ?? []));
  }

  publishedNow(): ReadonlySet<number> | undefined {
    const known = this.#options.state.containersNow();
    const up = known?.containers.filter(({ state }) => isUpState(state));
    return up && new Set(up.flatMap(({ ports }) => ports.flatMap(({ hostPort }) => hostPort ?? [])));
  }

  /** Measures all containers over one interval; each app gets the sum of its containers. */
  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const running = apps.flatMap(({ id }) => {
      const app = this.apps.get(id);
      if (app?.status.state !== "RUNNING") return [];
      const ids = app.members.filter(({ state }) => state === "running").map((container) => container.id);
      return [[id, ids] as const];
    });
    return sampleApps(this.#sampler, new Map(running), signal);
  }

  async openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    const running = this.appOf(app.id).members.filter(({ state }) => state === "running");
    const { engine, events, programs } = this.#options;
    const onDeath = events.onDeath.bind(events);
    return openAppTerminal(engine, app, running, { sizes: this.#sizes, onDeath, programs }, request);
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, this.#enforces);
  }

  /**
   * Call before anything is created for an app; an app that was started before may already have objects on the
   * engine.
   */
  begin({ id, startedSettings }: RunnableApp): void {
    this.#detectHang();
    if (startedSettings === null && !this.apps.has(id)) this.#untouched.add(id);
  }

  /** Starts checking the engine early, so that a hanging engine is known by the time it is needed. */
  #detectHang(): void {
    this.#options.events.verify().catch(() => undefined);
  }

  /** Objects of the app may exist on the engine from now on. @throws SvcError `unavailable` */
  protected async reach(id: string): Promise<void> {
    await this.#options.state.containers();
    this.#untouched.delete(id);
  }

  /** True if the preparation ended before any request to the engine, so that nothing has to be removed. */
  protected isUntouched(id: string): boolean {
    return this.#untouched.has(id);
  }

  /** The app is watched from now on. */
  protected appOf(id: string): ContainerApp {
    this.#untouched.delete(id);
    const known = this.apps.get(id);
    if (known !== undefined) return known;
    const app = new ContainerApp(id, {
      ...this.#options,
      hasParts: this.hasParts,
      lastLines: (container) => this.#lastLines(container),
      checkAgain: (app) => this.checkAgain(app),
      replace: (app, container) => this.replace(app, container),
      dependentsOf: (app, container) => this.dependentsOf(app, container),
      onChange: () => this.notifyChanged(id),
    });
    this.follow(id, app);
    return app;
  }

  protected forget(id: string): void {
    this.#untouched.delete(id);
    this.unfollow(id);
  }

  async #lastLines(container: ContainerRecord): Promise<string[]> {
    const { lines } = await readContainerLog(this.#options.engine, container, {
      tail: maxStatusLines,
      // Output can be older than the start time that the engine reports.
      ...(container.startedAtMs !== undefined && { sinceMs: container.startedAtMs - startSlackMs }),
    });
    return lines.map(({ text }) => text);
  }

  #take(change: EngineChange): void {
    if (this.apps.size === 0) return;
    switch (change.kind) {
      case "containers":
        for (const app of this.#appsWith(change.ids)) void this.#attempt(app, app.observe());
        return;
      case "unavailable":
        for (const app of this.apps.values()) app.onEngineLost(change.error);
        return;
      case "available":
        void this.#onEngineBack();
        return;
      default:
        return;
    }
  }

  #appsWith(containerIds: ReadonlySet<string>): Set<ContainerApp> {
    const concerned = new Set<ContainerApp>();
    for (const app of this.apps.values()) {
      if (app.members.some(({ id }) => containerIds.has(id))) concerned.add(app);
    }
    for (const id of containerIds) {
      const container = this.#options.state.containerNow(id);
      const appId = container && this.#options.ownership.ownerOf("container", namedObject(container));
      const app = this.apps.get(appId ?? "");
      if (app !== undefined) concerned.add(app);
    }
    return concerned;
  }

  async #onEngineBack(): Promise<void> {
    await mapBounded([...this.apps.values()], observedAtOnce, (app) =>
      this.#attempt(app, app.onEngineBack()),
    );
    try {
      const info: unknown = await this.#options.engine.call("describe itself", (docker) => docker.info());
      const { MemoryLimit, CpuCfsQuota } = info as EngineLimits;
      this.#enforces = { memory: MemoryLimit, cpus: CpuCfsQuota };
    } catch (error) {
      this.#options.log.warn({ err: error }, "failed to read the limits that the container engine enforces");
    }
  }

  /** The result shows in the app's status. */
  async #attempt(app: ContainerApp, work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#options.log.warn({ app: app.id, err: error }, "failed to check the containers of an app");
    }
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await super[Symbol.asyncDispose]();
  }
}
