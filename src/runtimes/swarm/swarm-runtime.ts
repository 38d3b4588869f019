/** Runs apps as services of the swarm that the host's engine manages, with one or more tasks on any of its nodes. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { ContainerRuntimeOptions } from "../containers/container-runtime.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { addressesByPort, publishedPorts } from "../containers/published-ports.ts";
import type { AppRuntime, FollowLogOptions, LogOptions } from "../contract.ts";
import type {
  EngineVolumes,
  ImageRuntime,
  PublishedAddresses,
  RollOptions,
  RuntimeWork,
  FreezingRuntime,
  UsageRuntime,
  TerminalRuntime,
  PublishingRuntime,
  DataRuntime,
  ExternallyStartedRuntime,
  RollingRuntime,
  ScalingRuntime,
} from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { ComposeStacks, type ComposeStacksOptions } from "./compose-stacks.ts";
import { DockerStacks, type DockerStacksOptions } from "./docker-stacks.ts";
import { type LaunchedService } from "./service-launch.ts";
import { LocalTasks } from "./local-tasks.ts";
import { followAppLog, readAppLog } from "./app-log.ts";
import { startPollMs, SwarmRollout } from "./swarm-rollout.ts";
import { placementOf, type StackPlan, type Stacks, imagesOfKinds } from "./stack-plan.ts";
import { SwarmApi, type ServiceSpec } from "./swarm-api.ts";
import { usageOfService } from "./swarm-usage.ts";
import { scaleUpdates } from "./scaling.ts";
import { SwarmApp } from "./swarm-app.ts";
import { SwarmPolls } from "./swarm-polls.ts";
import { isUpTask } from "./task-status.ts";

export type SwarmRuntimeOptions = Pick<
  ContainerRuntimeOptions,
  "engine" | "events" | "state" | "programs" | "transportOf" | "userContainers" | "log"
> &
  DockerStacksOptions &
  Omit<ComposeStacksOptions, "touch">;

const stopMarginMs = 20_000;
const goneTimeoutMs = 30_000;

export class SwarmRuntime extends FollowingRuntime<SwarmApp> implements AppRuntime {
  readonly publishing: PublishingRuntime = this;
  readonly data: DataRuntime = this;
  readonly external: ExternallyStartedRuntime = this;
  readonly rolling: RollingRuntime = this;
  readonly scaling: ScalingRuntime = this;

  readonly freezing: FreezingRuntime;
  readonly usage: UsageRuntime;
  readonly terminals: TerminalRuntime;
  readonly images: ImageRuntime;
  readonly volumes: EngineVolumes;
  readonly #options: SwarmRuntimeOptions;
  readonly #api: SwarmApi;
  readonly #docker: DockerStacks;
  readonly #compose: ComposeStacks;
  readonly #rollout: SwarmRollout;
  readonly #polls: SwarmPolls;

  constructor(options: SwarmRuntimeOptions) {
    super();
    this.#options = options;
    this.#api = new SwarmApi(options);
    this.#polls = new SwarmPolls({ api: this.#api, apps: this.apps, log: options.log });
    this.#docker = new DockerStacks(options);
    this.#compose = new ComposeStacks({ ...options, touch: (id) => void this.#appOf(id) });
    this.images = imagesOfKinds((app) => this.#stacksOf(app).images, this.#compose.images);
    this.volumes = this.#compose.volumes;
    const local = new LocalTasks({ ...options, tasksOf: (id) => this.status(id)?.tasks ?? [] });
    this.freezing = local;
    this.usage = local;
    this.terminals = local;
    this.#rollout = new SwarmRollout({ ...options, api: this.#api, refresh: () => this.#polls.refresh() });
  }

  #stacksOf({ manifest }: Pick<RunnableApp, "manifest">): Stacks {
    return manifest.runtime.kind === "compose" ? this.#compose : this.#docker;
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    await this.#api.managerId();
    await this.check(app);
    await this.#stacksOf(app).prepare(app, work);
  }

  async settle(app: RunnableApp): Promise<void> {
    await this.#stacksOf(app).settle(app);
    await this.#api.removeTaskFiles(app.id);
  }

  check(app: RunnableApp): Promise<void> {
    return this.#stacksOf(app).check(app);
  }

  async start(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    let hasBegun = false;
    try {
      const plan = await this.#plan(app);
      using _counted = await this.#reserve(app, specsOf(plan));
      await this.#ensureNetworks(app, plan);
      await this.#endEnded(app, watched);
      hasBegun = true;
      const waiting: LaunchedService[] = [];
      for (const step of plan.steps) {
        const launched: LaunchedService[] = [];
        for (const service of step) launched.push(await this.#rollout.launch(app, watched, service));
        watched.setRunning(app);
        waiting.push(...(await this.#rollout.untilUp(app, watched, launched, { mayWait: true })));
      }
      await this.#rollout.requireAnyPlaced(app, watched, plan, waiting);
      await this.#removeOthers(app, plan);
    } catch (error) {
      await this.#cleanUp(app, watched, error, hasBegun);
      throw error;
    }
  }

  async preserveData(app: RunnableApp): Promise<void> {
    if (app.manifest.runtime.kind === "compose") await this.#compose.preserveData(app);
  }

  sharedData(id: string): Promise<string[]> {
    return this.#compose.volumes.sharedNames(id);
  }

  copyData(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number> {
    return this.#compose.volumes.copy(from.id, to.id, work);
  }

  async #plan(app: RunnableApp): Promise<StackPlan> {
    const nodeId = await this.#api.managerId();
    return this.#stacksOf(app).plan(app, nodeId);
  }

  /** @throws SvcError `too_many` as {@link UserContainers.reserve} */
  #reserve(app: RunnableApp, specs: readonly ServiceSpec[]): Promise<Disposable> {
    return this.#options.userContainers.reserve(
      app,
      specs.map((spec) => ({ uses: usageOfService(spec) })),
    );
  }

  /** @throws SvcError `too_many` as {@link AppNetworks.reserve} */
  async #ensureNetworks(app: RunnableApp, plan: StackPlan): Promise<void> {
    const { networks } = this.#options;
    const existing = new Set((await networks.of(app.id)).map(({ Name: name }) => name));
    const missing = plan.networks.filter(({ name }) => !existing.has(name));
    using _counted =
      missing.length === 0
        ? undefined
        : await networks.reserve(app, { count: missing.length, containers: 0 });
    for (const { name, isInternal } of plan.networks) await this.#api.ensureNetwork(app.id, name, isInternal);
  }

  /** Removes services without running tasks: their ended tasks would be confused with those of the next start. */
  async #endEnded(app: RunnableApp, watched: SwarmApp): Promise<void> {
    const services = await this.#api.services(app.id);
    if (services.length === 0) return;
    await this.#polls.refresh();
    const up = new Set(watched.tasks.filter((task) => isUpTask(task)).map(({ serviceId }) => serviceId));
    const ended = services.filter(({ id }) => !up.has(id));
    for (const { id } of ended) await this.#api.removeService(id);
    if (ended.length > 0) await this.#untilGone(app, new Set(ended.map(({ id }) => id)));
  }

  /** Removes services of an earlier version that the plan does not contain. */
  async #removeOthers(app: RunnableApp, { steps }: StackPlan): Promise<void> {
    const planned = new Set(steps.flat().map(({ part }) => part));
    for (const { id, part } of await this.#api.services(app.id)) {
      if (!planned.has(part)) await this.#api.removeService(id);
    }
    await this.#polls.refresh();
  }

  /** Removes what a failed start created: a part of an app would look like a running app. */
  async #cleanUp(app: RunnableApp, watched: SwarmApp, error: unknown, hasBegun: boolean): Promise<void> {
    const reason = error instanceof SvcError ? (error as SvcError).reason : undefined;
    if (reason === "unavailable") {
      // Once the swarm is reachable again, the app is found missing and started.
      watched.setRunning(app);
      await this.#polls.refresh().catch(() => undefined);
    } else watched.setStopped();
    try {
      if (hasBegun && reason !== "unavailable") await this.stop(app);
      else await this.#api.removeTaskFiles(app.id);
    } catch (failure) {
      this.#options.log.warn(
        { app: app.id, err: failure },
        "failed to remove leftovers of a start on the swarm",
      );
    }
  }

  async canRoll(app: RunnableApp): Promise<boolean> {
    const services = await this.#api.services(app.id);
    await this.#rollout.requireNodes(app, this.#appOf(app.id), services);
    const parts = await this.#stacksOf(app).partsWithoutData(app);
    // A service that replaces another one may need its ports, which are free only after a stop.
    return parts !== undefined && services.every(({ part }) => parts.includes(part));
  }

  async roll(to: RunnableApp, how: RollOptions = {}): Promise<void> {
    const watched = this.#appOf(to.id);
    const plan = await this.#plan(to);
    using _counted = await this.#reserve(to, specsOf(plan));
    await this.#ensureNetworks(to, plan);
    // Removes files of replaced tasks: each roll creates new files.
    await this.#api.removeTaskFiles(to.id);
    watched.setRunning(to);
    for (const step of plan.steps) {
      for (const service of step) await this.#rollout.rollService(to, watched, service, how);
    }
    await this.#removeOthers(to, plan);
    await this.#rollout.untilHealthy(to, watched, how);
  }

  async scale(app: RunnableApp): Promise<void> {
    const { replicas } = placementOf(app);
    const { fixed, updates } = scaleUpdates(app, await this.#api.services(app.id), replicas);
    using _counted = await this.#reserve(app, [...fixed, ...updates.map(({ spec }) => spec)]);
    for (const { service, spec } of updates) await this.#api.update(service, spec);
    if (updates.length > 0) await this.#polls.refresh();
  }

  async stop(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    watched.setStopped();
    if (!(await this.#api.isMember())) {
      watched.take([], []);
      return;
    }
    for (const { id } of await this.#api.services(app.id)) await this.#api.removeService(id);
    await this.#untilGone(app);
    // The next start creates them again.
    await this.#api.removeTaskFiles(app.id);
  }

  /**
   * Ignores nodes that do not respond: the swarm ends their tasks when they are back.
   * @param serviceIds services to wait for; default: all of the app
   */
  async #untilGone(app: RunnableApp, serviceIds?: ReadonlySet<string>): Promise<void> {
    const deadlineMs = Date.now() + app.manifest.stop.graceMs + stopMarginMs;
    for (;;) {
      await this.#polls.refresh();
      const states = new Map((await this.#api.nodes()).map(({ id, state }) => [id, state]));
      const remaining = (this.apps.get(app.id)?.tasks ?? []).filter(
        ({ state, nodeId, serviceId }) =>
          ["running", "starting"].includes(state) &&
          states.get(nodeId) === "ready" &&
          serviceIds?.has(serviceId) !== false,
      );
      if (remaining.length === 0) return;
      if (Date.now() > deadlineMs) {
        const nodes = [...new Set(remaining.map(({ node }) => node))].join(", ");
        throw new SvcError("unavailable", `app "${app.id}" did not stop in time on ${nodes}`);
      }
      await sleep(startPollMs);
    }
  }

  async reattach(app: RunnableApp): Promise<"running" | "lost"> {
    const watched = this.#appOf(app.id);
    watched.setRunning(app);
    await this.#polls.refresh().catch(() => undefined);
    return watched.status.isLost === true ? "lost" : "running";
  }

  /** Apps that the swarm keeps running; from then on svc also polls for apps that should not run. */
  upNow(): ReadonlySet<string> {
    return this.#polls.followExternal();
  }

  async remove(app: RunnableApp, keep?: "volumes"): Promise<number> {
    if (await this.#api.isMember()) await this.#removeFromSwarm(app);
    const freed = await this.#stacksOf(app).remove(app, keep);
    this.unfollow(app.id);
    return freed;
  }

  async #removeFromSwarm(app: RunnableApp): Promise<void> {
    if ((await this.#api.services(app.id)).length > 0) await this.stop(app);
    const deadlineMs = Date.now() + goneTimeoutMs;
    for (;;) {
      try {
        // The last task may have just ended.
        await this.#api.removeNetworks(app.id);
        break;
      } catch (error) {
        if (Date.now() > deadlineMs || !(error instanceof SvcError) || error.code === "unavailable")
          throw error;
        await sleep(startPollMs);
      }
    }
    await this.#api.removeTaskFiles(app.id);
  }

  /** The docker runtime reports the ports of all containers, including the swarm's. */
  publishedNow(): undefined {
    return undefined;
  }

  publishedAt(app: RunnableApp): Promise<PublishedAddresses> {
    return Promise.resolve(addressesByPort(publishedPorts(app, this.#options)));
  }

  logs(app: RunnableApp, options: LogOptions): Promise<LogChunk> {
    return readAppLog({ engine: this.#options.engine, api: this.#api }, app, options);
  }

  followLogs(app: RunnableApp, options: FollowLogOptions): AsyncGenerator<LogChunk, void> {
    const watch = async (): Promise<SwarmApp> => {
      const watched = this.#appOf(app.id);
      await this.#polls.refresh();
      return watched;
    };
    return followAppLog({ engine: this.#options.engine, api: this.#api }, app, watch, options);
  }

  #appOf(id: string): SwarmApp {
    const known = this.apps.get(id);
    if (known !== undefined) return known;
    const app = new SwarmApp(id, () => this.notifyChanged(id));
    this.#options.state.start();
    this.follow(id, app);
    return app;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.#polls[Symbol.asyncDispose]();
    await super[Symbol.asyncDispose]();
  }
}

function specsOf({ steps }: StackPlan): ServiceSpec[] {
  return steps.flat().map(({ spec }) => spec);
}
