/** Apps that are a service of the swarm that the host's engine manages, each in one task or more, on any of its nodes. */
import { setTimeout as sleep } from "node:timers/promises";
import { appLabels, isMadeFor } from "../../docker/attribution.ts";
import { ContainerSampler } from "../../docker/container-sampler.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import { WatchedSizes } from "../../docker/container-attachment.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { SharedRounds } from "../../lib/shared-rounds.ts";
import { Ticker } from "../../lib/ticker.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { AppContainers } from "../app-containers.ts";
import type { ContainerRuntimeOptions } from "../container-runtime.ts";
import { openAppTerminal } from "../container-terminals.ts";
import { sampleApps } from "../container-usage.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import { addressesByPort, publishedPorts } from "../published-ports.ts";
import type {
  AppRuntime,
  EngineVolumes,
  FollowLogOptions,
  ImageRuntime,
  LogChunk,
  PublishedAddresses,
  RollOptions,
  RunnableApp,
  RuntimeLimit,
  RuntimeUsage,
  RuntimeWork,
  TerminalRequest,
} from "../runtime.ts";
import { startFailed } from "../start-failed.ts";
import { releaseLabel } from "../stuck-containers.ts";
import { ComposeStacks, type ComposeStacksOptions } from "./compose-stacks.ts";
import { DockerStacks, type DockerStacksOptions } from "./docker-stacks.ts";
import { handOver } from "./handed-files.ts";
import {
  followAway,
  followServiceLog,
  followTogether,
  mergeLogs,
  readServiceLog,
  readTaskLog,
} from "./service-logs.ts";
import {
  besides,
  placementOf,
  requireFewTasks,
  scaledLabel,
  type ServicePlan,
  type StackPlan,
  type Stacks,
} from "./stack-plan.ts";
import { imagesOfKinds } from "./stack-images.ts";
import { SwarmApi, taskName, type ServiceSpec, type SwarmService, type SwarmTask } from "./swarm-api.ts";
import { SwarmApp } from "./swarm-app.ts";
import { isHealthChecked, isMeant, isUpTask } from "./task-status.ts";

export type SwarmRuntimeOptions = Pick<
  ContainerRuntimeOptions,
  "engine" | "events" | "state" | "programs" | "isInsecure" | "log"
> &
  DockerStacksOptions &
  Omit<ComposeStacksOptions, "touch">;

const pollMs = 2_000;
const startPollMs = 300;
/** A node may have to pull the image first. */
const startTimeoutMs = 10 * 60_000;
/** So long no node may suit, as when one has only just come back. */
const pendingMs = 10_000;
const stopMarginMs = 20_000;
const goneTimeoutMs = 30_000;

export class SwarmRuntime extends FollowingRuntime<SwarmApp> implements AppRuntime {
  readonly images: ImageRuntime;
  readonly volumes: EngineVolumes;
  readonly #options: SwarmRuntimeOptions;
  readonly #api: SwarmApi;
  readonly #docker: DockerStacks;
  readonly #compose: ComposeStacks;
  readonly #sampler: ContainerSampler;
  readonly #sizes = new WatchedSizes();
  readonly #ticker: Ticker;
  /** Each for all who want to know at a time. */
  readonly #looks = new SharedRounds<undefined, undefined>(() => this.#takeUp());
  /** Apps that had a service when the swarm was asked last; undefined while it cannot be asked. */
  #inService: ReadonlySet<string> | undefined;
  /** Whether what runs unwanted is looked for. */
  #isFollowed = false;
  #isAway = false;

  constructor(options: SwarmRuntimeOptions) {
    super();
    this.#options = options;
    this.#api = new SwarmApi(options);
    this.#docker = new DockerStacks(options);
    this.#compose = new ComposeStacks({ ...options, touch: (id) => void this.#appOf(id) });
    this.images = imagesOfKinds((app) => this.#stacksOf(app).images, this.#compose.images);
    this.volumes = this.#compose.volumes;
    this.#sampler = new ContainerSampler(options);
    this.#ticker = new Ticker(pollMs, () => this.#poll());
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
    await this.#api.removeHanded(app.id);
  }

  check(app: RunnableApp): Promise<void> {
    return this.#stacksOf(app).check(app);
  }

  async start(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    let hasBegun = false;
    try {
      const plan = await this.#plan(app);
      await this.#endEnded(app, watched);
      hasBegun = true;
      for (const step of plan.steps) {
        const launched: Launched[] = [];
        for (const service of step) launched.push(await this.#launch(app, watched, service));
        watched.want(app);
        await this.#untilUp(app, watched, launched);
      }
      await this.#removeOthers(app, plan);
    } catch (error) {
      await this.#giveUp(app, watched, error, hasBegun);
      throw error;
    }
  }

  async keepData(app: RunnableApp): Promise<void> {
    if (app.manifest.runtime.kind === "compose") await this.#compose.keepData(app);
  }

  sharedData(id: string): Promise<string[]> {
    return this.#compose.volumes.sharedNames(id);
  }

  copyData(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number> {
    return this.#compose.volumes.copy(from.id, to.id, work);
  }

  /** What it is to be, on networks that are there. */
  async #plan(app: RunnableApp): Promise<StackPlan> {
    const nodeId = await this.#api.managerId();
    const plan = await this.#stacksOf(app).plan(app, nodeId);
    const labels = appLabels(app.id, this.#options.storeId);
    for (const { name, isInternal } of plan.networks) await this.#api.ensureNetwork(name, isInternal, labels);
    return plan;
  }

  /** Has the service be there. */
  async #launch(app: RunnableApp, watched: SwarmApp, plan: ServicePlan): Promise<Launched> {
    const { part, image, spec: planned } = plan;
    const spec = await this.#withFiles(app, plan);
    const credentials = await this.#options.credentialsOf(app.ownerUid, image);
    const existing = (await this.#api.services(app.id)).find((service) => service.part === part);
    const earlier = new Set(watched.tasks.map(({ id }) => id));
    if (existing !== undefined) await this.#api.update(existing, spec, credentials);
    const serviceId = existing?.id ?? (await this.#api.create(spec, credentials));
    const { Replicas: replicas } = planned.Mode.Replicated;
    const release = planned.Labels[releaseLabel] ?? "";
    const isChecked = isHealthChecked({ spec: planned });
    return {
      ...{ serviceId, part, release, earlier, replicas, isChecked },
      mayEnd: mayEnd(planned) && !isChecked,
      hasTerminal: hasTerminal({ spec: planned }),
    };
  }

  async #withFiles(app: RunnableApp, { spec, files }: ServicePlan): Promise<ServiceSpec> {
    const { storeId, identities } = this.#options;
    const { user: owner } = await identities.as(app.uid);
    // Root's containers may run as whatever user their image names.
    const mode = app.ownerUid === 0 ? 0o444 : 0o400;
    const labels = appLabels(app.id, storeId);
    const given = await handOver(this.#api, files, { labels, owner, mode });
    const container = spec.TaskTemplate["ContainerSpec"] as JsonObject;
    return { ...spec, TaskTemplate: { ...spec.TaskTemplate, ContainerSpec: { ...container, ...given } } };
  }

  /** Services of which nothing runs any more go: their tasks' ends would be taken for those of the next start. */
  async #endEnded(app: RunnableApp, watched: SwarmApp): Promise<void> {
    const services = await this.#api.services(app.id);
    if (services.length === 0) return;
    await this.#look();
    const up = new Set(watched.tasks.filter((task) => isUpTask(task)).map(({ serviceId }) => serviceId));
    const ended = services.filter(({ id }) => !up.has(id));
    for (const { id } of ended) await this.#api.removeService(id);
    if (ended.length > 0) await this.#untilGone(app, new Set(ended.map(({ id }) => id)));
  }

  /** Services that an earlier version had. */
  async #removeOthers(app: RunnableApp, { steps }: StackPlan): Promise<void> {
    const planned = new Set(steps.flat().map(({ part }) => part));
    for (const { id, part } of await this.#api.services(app.id)) {
      if (!planned.has(part)) await this.#api.removeService(id);
    }
    await this.#look();
  }

  /** Has nothing stay of a start that failed: half an app would look like one. */
  async #giveUp(app: RunnableApp, watched: SwarmApp, error: unknown, hasBegun: boolean): Promise<void> {
    const reason = error instanceof SvcError ? (error as SvcError).reason : undefined;
    if (reason === "unavailable") {
      // Once the swarm is back, the app is seen to be missing, and started.
      watched.want(app);
      await this.#look().catch(() => undefined);
    } else watched.release();
    try {
      if (hasBegun && reason !== "unavailable") await this.stop(app);
      await this.#api.removeHanded(app.id);
    } catch (failure) {
      this.#options.log.warn(
        { app: app.id, err: failure },
        "what a start on the swarm left could not be removed",
      );
    }
  }

  /**
   * Resolves when as many tasks run as are to, or as there are nodes for: the swarm starts the others as soon as it has one.
   * @throws SvcError `start_failed` with the swarm's words
   */
  async #untilUp(
    app: RunnableApp,
    watched: SwarmApp,
    launched: readonly Launched[],
    signal?: AbortSignal,
  ): Promise<void> {
    const begunMs = Date.now();
    for (;;) {
      signal?.throwIfAborted();
      await this.#look();
      const waited = Date.now() - begunMs;
      const isDone = (service: Launched): boolean =>
        isWhole(service, watched.tasks) || (waited > pendingMs && isWholeButForNodes(service, watched.tasks));
      const missing = launched.filter((service) => !isDone(service));
      if (missing.length === 0) return;
      for (const service of missing) {
        const why = whyStuck(service, watched.tasks, waited);
        if (why !== undefined) throw await this.#startFailed(app, service, why);
      }
      const isOver = watched.status.state === "CRASHED" || watched.status.state === "STOPPED";
      if (isOver || waited > startTimeoutMs) {
        throw startFailed(app.id, watched.status.reason || "the swarm made no task of it");
      }
      await sleep(startPollMs);
    }
  }

  async #startFailed(
    app: RunnableApp,
    { part, hasTerminal: isTerminal }: Pick<Launched, "part" | "hasTerminal">,
    { id, state, error, node, exitCode }: SwarmTask,
  ): Promise<SvcError> {
    const isBad = state === "failed" || state === "rejected";
    const lastLines = isBad ? await this.#lastLines(id, isTerminal) : [];
    const whose = part === "" ? "" : `service "${part}": `;
    const at = node === "" ? "" : ` on ${node}`;
    const plain =
      state === "complete" ? "its task ended before its health check passed" : `its task is ${state}`;
    const words = error === "" ? plain : error;
    return startFailed(app.id, `${whose}${words}${at}`, {
      exitCode: isBad ? exitCode : undefined,
      lastLines,
    });
  }

  async canRoll(app: RunnableApp): Promise<boolean> {
    const services = await this.#api.services(app.id);
    await this.#requirePlaces(app, services);
    const parts = await this.#stacksOf(app).partsWithoutData(app);
    // What took the place of a service may want its ports: that one has to go first.
    return parts !== undefined && services.every(({ part }) => parts.includes(part));
  }

  /** @throws SvcError `not_possible`: the swarm would wait for a task that has no node, and replace nothing else meanwhile */
  async #requirePlaces({ id }: RunnableApp, services: readonly SwarmService[]): Promise<void> {
    const watched = this.#appOf(id);
    await this.#look();
    const waiting = watched.tasks.find((task) => isWithoutNode(task));
    if (waiting === undefined) return;
    const part = services.find((service) => service.id === waiting.serviceId)?.part ?? "";
    throw new SvcError(
      "not_possible",
      `task ${taskName(part, waiting.slot)} of app "${id}" has no node (${waiting.error}), and an upgrade would wait for it: ${whatNodesNeed(id)}, or stop it first`,
    );
  }

  async roll(to: RunnableApp, how: RollOptions = {}): Promise<void> {
    const watched = this.#appOf(to.id);
    const plan = await this.#plan(to);
    watched.want(to);
    for (const step of plan.steps) {
      for (const service of step) await this.#rollService(to, watched, service, how);
    }
    await this.#removeOthers(to, plan);
    await this.#untilWell(to, watched, how);
  }

  async #rollService(to: RunnableApp, watched: SwarmApp, plan: ServicePlan, how: RollOptions): Promise<void> {
    const existing = await this.#settled(to, plan, how.signal);
    if (existing !== undefined && isRelease(existing, plan)) return;
    await this.#look();
    if (existing !== undefined && how.isBack === true) {
      await this.#rollServiceBack(to, watched, plan, existing);
      return;
    }
    const launched = await this.#launch(to, watched, plan);
    if (existing !== undefined) {
      const [waiting] = await this.#untilRolled(to, watched, launched, { signal: how.signal });
      if (waiting !== undefined) throw withoutNode(to, launched, waiting);
    }
    await this.#untilUp(to, watched, [launched], how.signal);
  }

  /** What has no node now had one before, or had none then either: all others go back, and it is left to wait. */
  async #rollServiceBack(
    to: RunnableApp,
    watched: SwarmApp,
    plan: ServicePlan,
    existing: SwarmService,
  ): Promise<void> {
    let left = waitingOf(existing.id, watched.tasks).length;
    for (;;) {
      const launched = await this.#launch(to, watched, besides(plan, left));
      const waiting = await this.#untilRolled(to, watched, launched, { passing: left });
      if (waiting.length <= left) return;
      left = waiting.length;
    }
  }

  /**
   * The service that is there; if it is what the plan makes, as soon as the swarm has come to it, or has gone back to it by
   * itself. Told of it once more, the swarm would have nothing to replace, and never say that it did.
   * @throws SvcError `start_failed` when that takes too long
   */
  async #settled(
    app: RunnableApp,
    plan: ServicePlan,
    signal: AbortSignal | undefined,
  ): Promise<SwarmService | undefined> {
    const begunMs = Date.now();
    for (;;) {
      signal?.throwIfAborted();
      const services = await this.#api.services(app.id);
      const existing = services.find(({ part }) => part === plan.part);
      if (existing === undefined || !isRelease(existing, plan) || !isUnderway(existing)) return existing;
      if (Date.now() - begunMs > startTimeoutMs)
        throw startFailed(app.id, "the swarm did not come to the end of its update");
      await sleep(startPollMs);
    }
  }

  /**
   * Resolves without any when the swarm has replaced all, or with the tasks for which it has had no node for too long to wait
   * on: when there are more than `passing` of them, or when all others are replaced.
   * @throws SvcError `start_failed` when the swarm goes back
   */
  async #untilRolled(
    app: RunnableApp,
    watched: SwarmApp,
    launched: Launched,
    { signal, passing = 0 }: { signal?: AbortSignal | undefined; passing?: number },
  ): Promise<readonly SwarmTask[]> {
    const begunMs = Date.now();
    // What is replaced has its port until it has ended.
    const patienceMs = pendingMs + app.manifest.stop.graceMs;
    let wholeAtMs = begunMs;
    for (;;) {
      signal?.throwIfAborted();
      const update = (await this.#api.service(launched.serviceId))?.update;
      if (update?.state === "completed") return [];
      await this.#look();
      if (update !== undefined && update.state !== "updating") {
        const own = watched.tasks.filter((task) => isOfLaunch(launched, task));
        const bad = own.find(({ state }) => state === "failed" || state === "rejected");
        if (bad !== undefined) throw await this.#startFailed(app, launched, bad);
        throw startFailed(app.id, update.message || `the swarm says ${update.state}`);
      }
      const waiting = waitingOf(launched.serviceId, watched.tasks);
      if (waiting.length === 0) wholeAtMs = Date.now();
      const isEnough = waiting.length > passing || isReplaced(launched, watched.tasks);
      if (isEnough && Date.now() - wholeAtMs > patienceMs) return waiting;
      if (Date.now() - begunMs > startTimeoutMs)
        throw startFailed(app.id, "the swarm did not come to its end");
      await sleep(startPollMs);
    }
  }

  /**
   * Where svc asks for its health, until that is known. What goes back is taken as it is: it was so before.
   * @throws SvcError `start_failed`
   */
  async #untilWell(
    app: RunnableApp,
    watched: SwarmApp,
    { signal, isBack = false }: RollOptions,
  ): Promise<void> {
    const begunMs = Date.now();
    await this.#look();
    for (;;) {
      signal?.throwIfAborted();
      const { health, healthReason = "" } = watched.status;
      if (health === "healthy" || health === "none") return;
      if (health === "unhealthy" || Date.now() - begunMs > startTimeoutMs) {
        if (isBack) return;
        throw startFailed(app.id, `its health check fails: ${healthReason}`);
      }
      await sleep(startPollMs);
    }
  }

  /** Of that task: what the others print says nothing of why it ended. */
  #lastLines(taskId: string, isTerminal: boolean): Promise<string[]> {
    const options = { tail: 20, hasTerminal: isTerminal };
    return readTaskLog(this.#options.engine, taskId, options).catch(() => []);
  }

  async scale(app: RunnableApp): Promise<void> {
    const { replicas } = placementOf(app);
    const services = await this.#api.services(app.id);
    // Those of an earlier svc have no label, and are all of their app.
    const scaled = services.filter(({ part, labels }) => part === "" || labels[scaledLabel] !== undefined);
    if (services.length > 0 && scaled.length === 0) {
      const message = `each service of app "${app.id}" keeps data or says in how many tasks it runs: none can be scaled`;
      throw new SvcError("not_possible", message);
    }
    const fixed = services.filter((service) => !scaled.includes(service));
    const others = fixed.reduce((sum, service) => sum + service.replicas, 0);
    requireFewTasks(app, others + Math.max(1, scaled.length) * replicas);
    for (const service of scaled) {
      await this.#api.update(service, { ...service.spec, Mode: { Replicated: { Replicas: replicas } } });
    }
    if (scaled.length > 0) await this.#look();
  }

  async stop(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    watched.release();
    if (!(await this.#api.isMember())) {
      watched.take([], []);
      return;
    }
    for (const { id } of await this.#api.services(app.id)) await this.#api.removeService(id);
    await this.#untilGone(app);
  }

  /**
   * Of a node that does not answer nobody can tell: the swarm ends what runs there when it is back.
   * @param serviceIds those that are waited for; all of the app's without
   */
  async #untilGone(app: RunnableApp, serviceIds?: ReadonlySet<string>): Promise<void> {
    const deadlineMs = Date.now() + app.manifest.stop.graceMs + stopMarginMs;
    for (;;) {
      await this.#look();
      const states = new Map((await this.#api.nodes()).map(({ id, state }) => [id, state]));
      const left = (this.apps.get(app.id)?.tasks ?? []).filter(
        ({ state, nodeId, serviceId }) =>
          ["running", "starting"].includes(state) &&
          states.get(nodeId) === "ready" &&
          serviceIds?.has(serviceId) !== false,
      );
      if (left.length === 0) return;
      if (Date.now() > deadlineMs) {
        const nodes = [...new Set(left.map(({ node }) => node))].join(", ");
        throw new SvcError("unavailable", `app "${app.id}" was told to stop and still runs on ${nodes}`);
      }
      await sleep(startPollMs);
    }
  }

  /** Its containers on this machine: where it has data, they are all here. */
  async freezable({ id }: RunnableApp): Promise<string[]> {
    await this.#options.state.containers();
    return this.#localOf(id).map((container) => container.id);
  }

  async freeze({ id }: RunnableApp, parts: readonly string[]): Promise<void> {
    const containers = new AppContainers(id, this.#options);
    await Promise.all(parts.map((part) => containers.pause(part)));
  }

  async thaw({ id }: RunnableApp, parts: readonly string[]): Promise<boolean> {
    const containers = new AppContainers(id, this.#options);
    const stood = await Promise.all(parts.map((part) => containers.unpause(part)));
    return stood.every(Boolean);
  }

  async adopt(app: RunnableApp): Promise<"running" | "lost"> {
    const watched = this.#appOf(app.id);
    watched.want(app);
    await this.#look().catch(() => undefined);
    return watched.status.isLost === true ? "lost" : "running";
  }

  /** Those that the swarm keeps running; from then on it is also asked for those that are not meant to. */
  upNow(): ReadonlySet<string> {
    this.#isFollowed = true;
    return this.#inService ?? new Set();
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
        // Its last task may have just ended.
        await this.#api.removeNetworks(app.id);
        break;
      } catch (error) {
        if (Date.now() > deadlineMs || !(error instanceof SvcError) || error.code === "unavailable")
          throw error;
        await sleep(startPollMs);
      }
    }
    await this.#api.removeHanded(app.id);
  }

  publishedAt(app: RunnableApp): Promise<PublishedAddresses> {
    return Promise.resolve(addressesByPort(publishedPorts(app, this.#options)));
  }

  async logs(app: RunnableApp, { tail, signal }: { tail: number; signal?: AbortSignal }): Promise<LogChunk> {
    const services = await this.#api.services(app.id);
    if (services.length === 0) return { lines: [], truncated: false, missedBytes: 0 };
    const all = await this.#api.tasks();
    const { engine } = this.#options;
    const chunks = services.map((service) => {
      const tasks = all.filter(({ serviceId }) => serviceId === service.id);
      const options = { tail, part: service.part, tasks, hasTerminal: hasTerminal(service), signal };
      return readServiceLog(engine, service.id, options);
    });
    return mergeLogs(await Promise.all(chunks), tail);
  }

  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const services = await this.#api.services(app.id);
    if (services.length === 0) return;
    const watched = this.#appOf(app.id);
    await this.#look();
    const tasksNow = (): readonly SwarmTask[] => watched.tasks;
    const follow = services.map((service) => (either: AbortSignal) => {
      const { id, part } = service;
      const from = after === undefined ? { tail } : { tail: Infinity, sinceMs: after.timeMs };
      const options = { ...from, part, tasksNow, hasTerminal: hasTerminal(service), signal: either };
      return followServiceLog(this.#options.engine, id, options);
    });
    const beside = (either: AbortSignal) =>
      followAway({ awayNow: () => this.#nodesAway(), tasksNow, signal: either });
    yield* followTogether(follow, beside, signal);
  }

  async #nodesAway(): Promise<ReadonlySet<string>> {
    const nodes = await this.#api.nodes();
    return new Set(nodes.flatMap(({ id, state }) => (state === "ready" ? [] : [id])));
  }

  /** Of the task on this machine: others' nodes have doors of their own. */
  async openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    const { engine, events, programs } = this.#options;
    await this.#options.state.containers();
    const running = this.#localOf(app.id);
    const elsewhere = (this.status(app.id)?.tasks ?? []).filter(({ state }) => state === "running");
    if (running.length === 0 && elsewhere.length > 0) {
      const nodes = [...new Set(elsewhere.map(({ node }) => node))].join(", ");
      throw new SvcError("not_possible", `app "${app.id}" runs on ${nodes}: open its terminal there`);
    }
    const onDeath = events.onDeath.bind(events);
    return openAppTerminal(
      engine,
      app,
      onePerService(running),
      { sizes: this.#sizes, onDeath, programs },
      request,
    );
  }

  /** Of the tasks on this machine: no engine measures another's. */
  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const running = apps.flatMap(({ id }) => {
      const ids = this.#localOf(id).map((container) => container.id);
      return ids.length === 0 ? [] : [[id, ids] as const];
    });
    return sampleApps(this.#sampler, new Map(running), signal);
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, { memory: true, cpus: true });
  }

  #localOf(appId: string): ContainerRecord[] {
    const all = this.#options.state.containersNow()?.containers ?? [];
    return all.filter(
      ({ labels, state }) => state === "running" && isMadeFor(appId, this.#options.storeId, labels),
    );
  }

  #appOf(id: string): SwarmApp {
    const known = this.apps.get(id);
    if (known !== undefined) return known;
    const app = new SwarmApp(id, () => this.announce(id));
    this.#options.state.start();
    this.follow(id, app);
    return app;
  }

  async #poll(): Promise<void> {
    const isAnyWanted = [...this.apps.values()].some(({ isWanted }) => isWanted);
    if (!isAnyWanted && !this.#mayRunUnwanted()) return;
    try {
      await this.#look();
    } catch {
      // Each of them shows it. Of an engine that is in no swarm nothing runs there.
      const isMember = isAnyWanted || (await this.#api.isMember().catch(() => true));
      if (!isMember) this.#inService = new Set();
    }
  }

  /** A stop came to nothing, or nobody has looked yet. */
  #mayRunUnwanted(): boolean {
    if (!this.#isFollowed) return false;
    return (
      this.#inService === undefined || [...this.#inService].some((id) => this.apps.get(id)?.isWanted !== true)
    );
  }

  /** As {@link SwarmRuntime.#takeUp}, by a question that is asked from now on. */
  async #look(): Promise<void> {
    await this.#looks.join(undefined);
  }

  /** Takes up what the swarm says of all apps. @throws SvcError `unavailable` */
  async #takeUp(): Promise<undefined> {
    try {
      const [services, tasks] = await Promise.all([this.#api.services(), this.#api.tasks()]);
      const servicesOf = Map.groupBy(services, ({ appId }) => appId);
      const tasksOf = Map.groupBy(tasks, ({ appId }) => appId);
      this.#inService = new Set(servicesOf.keys());
      this.#isAway = false;
      for (const [id, app] of this.apps) app.take(servicesOf.get(id) ?? [], tasksOf.get(id) ?? []);
    } catch (error) {
      this.#inService = undefined;
      // Each app shows it for as long as it is so.
      if (!this.#isAway) this.#options.log.warn({ err: error }, "the swarm cannot be asked");
      this.#isAway = true;
      const { message } = error as Error;
      for (const app of this.apps.values()) app.lost(message);
      throw error;
    }
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.#ticker[Symbol.asyncDispose]();
    await super[Symbol.asyncDispose]();
  }
}

/** A service that is to have other tasks now. */
interface Launched {
  readonly serviceId: string;
  readonly part: string;
  /** That its tasks are to be of. */
  readonly release: string;
  readonly replicas: number;
  /** The swarm asks for its health, and ends a task that fails; one that obeys with 0 has come to a good end, to its mind. */
  readonly isChecked: boolean;
  /** Its tasks may come to a good end. */
  readonly mayEnd: boolean;
  readonly hasTerminal: boolean;
  /** Ids of the tasks that were there before. */
  readonly earlier: ReadonlySet<string>;
}

function isOfLaunch({ serviceId, earlier }: Launched, task: SwarmTask): boolean {
  return task.serviceId === serviceId && !earlier.has(task.id);
}

function isWhole({ serviceId, replicas, mayEnd: may }: Launched, tasks: readonly SwarmTask[]): boolean {
  const own = tasks.filter((task) => task.serviceId === serviceId);
  const isThere = (task: SwarmTask): boolean => isUpTask(task) || (may && task.state === "complete");
  return own.filter(isThere).length >= replicas;
}

/** The swarm looks for a node for it, and finds none. */
function isWithoutNode(task: SwarmTask): boolean {
  return task.state === "pending" && isMeant(task) && task.error !== "";
}

function waitingOf(serviceId: string, tasks: readonly SwarmTask[]): SwarmTask[] {
  return tasks.filter((task) => task.serviceId === serviceId && isWithoutNode(task));
}

/** All that is meant to run is what was launched, whether it has a node or not. */
function isReplaced({ serviceId, release, replicas }: Launched, tasks: readonly SwarmTask[]): boolean {
  const meant = tasks.filter((task) => task.serviceId === serviceId && isMeant(task));
  const there = meant.filter((task) => isUpTask(task) || isWithoutNode(task));
  return meant.every((task) => task.release === release) && there.length >= replicas;
}

/** Some of it runs, and all else waits for nodes. */
function isWholeButForNodes(launched: Launched, tasks: readonly SwarmTask[]): boolean {
  const isAnyUp = tasks.some((task) => task.serviceId === launched.serviceId && isUpTask(task));
  return isAnyUp && isReplaced(launched, tasks);
}

function withoutNode({ id }: RunnableApp, { part }: Launched, { slot, error }: SwarmTask): SvcError {
  return startFailed(
    id,
    `task ${taskName(part, slot)} has no node any more (${error}): ${whatNodesNeed(id)}`,
  );
}

function whatNodesNeed(id: string): string {
  return `bring a node for it, or scale the app to what there are nodes for (svc app scale ${id} N)`;
}

/** The task that keeps it from being whole. */
function whyStuck(launched: Launched, tasks: readonly SwarmTask[], waitedMs: number): SwarmTask | undefined {
  const own = tasks.filter((task) => isOfLaunch(launched, task));
  return (
    own.find(({ state }) => state === "failed" || state === "rejected") ??
    own.find(({ state }) => launched.isChecked && state === "complete") ??
    own.find(({ state, error }) => state === "pending" && error !== "" && waitedMs > pendingMs) ??
    (waitedMs > startTimeoutMs ? own[0] : undefined)
  );
}

function mayEnd({ TaskTemplate: { RestartPolicy: restart } }: ServiceSpec): boolean {
  return (restart as { Condition?: string } | undefined)?.Condition !== "any";
}

/** Whether that is what the plan makes. */
function isRelease({ labels }: SwarmService, { spec }: ServicePlan): boolean {
  return labels[releaseLabel] === spec.Labels[releaseLabel];
}

/** An update goes on, forwards or back. */
function isUnderway({ update }: SwarmService): boolean {
  return ["updating", "rollback_started"].includes(update?.state ?? "");
}

function hasTerminal({ spec }: Pick<SwarmService, "spec">): boolean {
  return (spec.TaskTemplate["ContainerSpec"] as { TTY?: boolean } | undefined)?.TTY === true;
}

function onePerService(containers: readonly ContainerRecord[]): ContainerRecord[] {
  return [...new Map(containers.map((each) => [each.composeService ?? "", each])).values()];
}
