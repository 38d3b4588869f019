/** What the runtimes over the engine have in common: their apps, and what the engine tells of them. */
import { appLabel, storeLabel } from "../docker/attribution.ts";
import type { ContainerPrograms } from "../docker/container-programs.ts";
import { ContainerSampler } from "../docker/container-sampler.ts";
import { WatchedSizes } from "../docker/container-attachment.ts";
import { readContainerLog } from "../docker/container-logs.ts";
import { isUpState, type ContainerRecord } from "../docker/container-record.ts";
import type { EngineChange } from "../docker/engine-state.ts";
import type { EngineEvents } from "../docker/events.ts";
import { SvcError } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import type { AppNetworks } from "./app-networks.ts";
import type { Terminal } from "../lib/terminal.ts";
import { ContainerApp, type ContainerAppOptions } from "./container-app.ts";
import { sampleApps } from "./container-usage.ts";
import { FollowingRuntime } from "./followed-apps.ts";
import { limitsOf } from "./limits.ts";
import { boundAddresses } from "./published-ports.ts";
import type {
  AppRuntime,
  FollowLogOptions,
  ImageRuntime,
  LogChunk,
  PublishedAddresses,
  RunnableApp,
  RuntimeLimit,
  RuntimeUsage,
  RuntimeWork,
  TerminalRequest,
} from "./runtime.ts";
import { openAppTerminal } from "./container-terminals.ts";

export interface ContainerRuntimeOptions extends Omit<
  ContainerAppOptions,
  "lastLines" | "checkAgain" | "replace" | "onChange" | "hasParts"
> {
  events: EngineEvents;
  networks: AppNetworks;
  /** What is started in containers for those who open terminals there. */
  programs: ContainerPrograms;
  /** Whether the engine takes a registry for insecure; `host` as images name it. */
  isInsecure: (host: string) => Promise<boolean>;
  /** Processes that a regular user's container has at most, unless its compose file says otherwise. */
  usersPidsLimit: number;
  log: Pick<Log, "warn">;
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
/** Signals that tell a program something else than to end: HUP, USR1, USR2, CONT and STOP. */
const words: ReadonlySet<string> = new Set(["1", "10", "12", "18", "19"]);

/** Nothing is asked of the engine before the first app. Operations on one app come one at a time; the caller sees to that. */
export abstract class ContainerRuntime extends FollowingRuntime<ContainerApp> implements AppRuntime {
  abstract readonly images: ImageRuntime;
  /** Whether an app may be several containers. */
  protected abstract readonly hasParts: boolean;
  readonly #options: ContainerRuntimeOptions;
  readonly #sampler: ContainerSampler;
  readonly #untouched = new Set<string>();
  readonly #sizes = new WatchedSizes();
  readonly #subscriptions: readonly Disposable[];
  /** What the engine says that it can hold containers to. */
  #enforces = { memory: true, cpus: true };

  constructor(options: ContainerRuntimeOptions) {
    super();
    this.#options = options;
    this.#sampler = new ContainerSampler(options);
    this.#subscriptions = [
      options.state.onChange((change) => this.#take(change)),
      options.events.listen({
        onEvent: ({ type, action, id, attributes }) => {
          if (type !== "container" || attributes[storeLabel] !== options.storeId) return;
          const app = this.apps.get(attributes[appLabel] ?? "");
          if (action === "start") app?.started(id);
          if (action === "kill" && !words.has(attributes["signal"] ?? "")) app?.killed(id);
          if (action === "die") app?.died(id, Number(attributes["exitCode"] ?? 0));
        },
      }),
    ];
  }

  abstract prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  abstract settle(app: RunnableApp): Promise<void>;
  abstract check(app: RunnableApp): Promise<void>;
  /** As {@link check}, of what was started last: quickly, as it goes before each restart. */
  protected abstract checkAgain(app: RunnableApp): Promise<void>;
  protected abstract launch(app: RunnableApp): Promise<void>;
  /** Has another container run, of what was started last, in the place of one that the engine cannot start any more. */
  protected abstract replace(app: RunnableApp, container: ContainerRecord): Promise<void>;
  /** What the next start publishes. */
  protected abstract toPublish(app: RunnableApp): Promise<PublishedAddresses>;
  protected abstract end(app: RunnableApp): Promise<void>;
  protected abstract clear(app: RunnableApp, keep?: "volumes"): Promise<number>;
  abstract logs(app: RunnableApp, options: { tail: number; signal?: AbortSignal }): Promise<LogChunk>;
  abstract followLogs(app: RunnableApp, options: FollowLogOptions): AsyncIterable<LogChunk>;

  async start(app: RunnableApp): Promise<void> {
    this.#findOutWhetherItHangs();
    try {
      await this.#whileThere(`app "${app.id}" was started: it starts when that is back`, () =>
        this.launch(app),
      );
    } catch (error) {
      if (error instanceof SvcError && error.code === "unavailable") {
        this.appOf(app.id).awaitEngine(app, error as SvcError);
      }
      throw error;
    }
  }

  async stop(app: RunnableApp): Promise<void> {
    await this.#whileThere(`app "${app.id}" was stopped`, () => this.end(app));
  }

  async remove(app: RunnableApp, keep?: "volumes"): Promise<number> {
    return this.#whileThere(`app "${app.id}" was removed`, () => this.clear(app, keep));
  }

  async requireAnswer({ id }: RunnableApp): Promise<void> {
    if (!this.isUntouched(id)) await this.#options.state.containers();
  }

  /** Whatever it looks like: what fails while the engine ends fails since it ends. */
  async #whileThere<T>(what: string, work: () => Promise<T>): Promise<T> {
    const { events } = this.#options;
    const { generation } = events;
    try {
      return await work();
    } catch (error) {
      const isAway = events.error !== undefined || (generation > 0 && generation !== events.generation);
      if (!isAway) throw error;
      throw new SvcError("unavailable", `the container engine ended while ${what}`, { cause: error });
    }
  }

  async publishedAt(app: RunnableApp): Promise<PublishedAddresses> {
    const bound = boundAddresses(this.apps.get(app.id)?.members ?? []);
    return bound.size > 0 ? bound : this.toPublish(app);
  }

  /** Ids of its containers that run. */
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

  async adopt(app: RunnableApp, wasCut?: boolean): Promise<"running" | "lost"> {
    return this.appOf(app.id).adopt(app, wasCut);
  }

  /** Follows the engine from then on, so that it is known next time. */
  upNow(): ReadonlySet<string> {
    const { state, storeId } = this.#options;
    state.start();
    const up = (state.containersNow()?.containers ?? []).filter((container) => isUpState(container.state));
    return new Set(
      up.flatMap(({ labels }) => (labels[storeLabel] === storeId ? (labels[appLabel] ?? []) : [])),
    );
  }

  publishedNow(): ReadonlySet<number> | undefined {
    const known = this.#options.state.containersNow();
    const up = known?.containers.filter(({ state }) => isUpState(state));
    return up && new Set(up.flatMap(({ ports }) => ports.flatMap(({ hostPort }) => hostPort ?? [])));
  }

  /** All containers in one window, each app with the sum of its own. */
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

  /** Before anything is made for an app that is being prepared; one that was started before may have something there. */
  protected begin({ id, startedSettings }: RunnableApp): void {
    this.#findOutWhetherItHangs();
    if (startedSettings === null && !this.apps.has(id)) this.#untouched.add(id);
  }

  /** While other work goes on: by the time that the engine is needed its patience is used up. */
  #findOutWhetherItHangs(): void {
    this.#options.events.verify().catch(() => undefined);
  }

  /** From now on there may be something of the app on the engine. @throws SvcError `unavailable` */
  protected async reach(id: string): Promise<void> {
    await this.#options.state.containers();
    this.#untouched.delete(id);
  }

  /** True: preparing it came to its end before the engine was asked, so there is nothing to remove. */
  protected isUntouched(id: string): boolean {
    return this.#untouched.has(id);
  }

  /** Watched from now on. */
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
      onChange: () => this.announce(id),
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
      tail: keptLines,
      // What a process prints at once is older than what the engine takes for its start.
      ...(container.startedAtMs !== undefined && { sinceMs: container.startedAtMs - startSlackMs }),
    });
    return lines.map(({ text }) => text);
  }

  #take(change: EngineChange): void {
    if (this.apps.size === 0) return;
    switch (change.kind) {
      case "containers":
        for (const app of this.#concernedBy(change.ids)) void this.#attempt(app, app.observe());
        return;
      case "unavailable":
        for (const app of this.apps.values()) app.engineLost(change.error);
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
    for (const app of this.apps.values()) {
      if (app.members.some(({ id }) => containerIds.has(id))) concerned.add(app);
    }
    for (const id of containerIds) {
      const labels = this.#options.state.containerNow(id)?.labels;
      const app = labels && this.apps.get(labels[appLabel] ?? "");
      if (app !== undefined) concerned.add(app);
    }
    return concerned;
  }

  async #takeBack(): Promise<void> {
    await mapBounded([...this.apps.values()], observedAtOnce, (app) => this.#attempt(app, app.engineBack()));
    try {
      const info: unknown = await this.#options.engine.call("describe itself", (docker) => docker.info());
      const { MemoryLimit, CpuCfsQuota } = info as EngineLimits;
      this.#enforces = { memory: MemoryLimit, cpus: CpuCfsQuota };
    } catch (error) {
      this.#options.log.warn({ err: error }, "the container engine does not say which limits it enforces");
    }
  }

  /** Whatever comes of it shows in the status of the app. */
  async #attempt(app: ContainerApp, work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#options.log.warn(
        { app: app.id, err: error },
        "the containers of an app could not be looked into",
      );
    }
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await super[Symbol.asyncDispose]();
  }
}
