/** Apps that are a service of the swarm that the host's engine manages, each in one task or more, on any of its nodes. */
import { setTimeout as sleep } from "node:timers/promises";
import { appLabels, isMadeFor } from "../../docker/attribution.ts";
import { ContainerSampler } from "../../docker/container-sampler.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import { WatchedSizes } from "../../docker/container-attachment.ts";
import { SvcError } from "../../errors.ts";
import { SharedRounds } from "../../lib/shared-rounds.ts";
import { Ticker } from "../../lib/ticker.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { hasOwnTerminal } from "../../packages/manifest.ts";
import { AppContainers } from "../app-containers.ts";
import type { ContainerRuntimeOptions } from "../container-runtime.ts";
import { openAppTerminal } from "../container-terminals.ts";
import { sampleApps } from "../container-usage.ts";
import { AppImages, type CredentialsOf } from "../docker/app-images.ts";
import { ContainerConfigs, type ContainerConfigsOptions } from "../docker/container-configs.ts";
import { DockerImages } from "../docker/docker-images.ts";
import { limitsOf } from "../limits.ts";
import type { PublishedAddresses } from "../published-addresses.ts";
import { addressesByPort, publishedPorts } from "../published-ports.ts";
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
import { startFailed } from "../start-failed.ts";
import { appNotRunning } from "../status-changes.ts";
import { StatusListeners } from "../status-listeners.ts";
import type { TerminalRequest } from "../terminal-request.ts";
import { handedTo, handOver } from "./handed-files.ts";
import { followServiceLog, readServiceLog } from "./service-logs.ts";
import { serviceImage } from "./service-image.ts";
import { placementOf, requireFewTasks, requirePlaceable, serviceSpec } from "./service-spec.ts";
import { SwarmApi, type ServiceSpec, type SwarmService, type SwarmTask } from "./swarm-api.ts";
import { SwarmApp } from "./swarm-app.ts";
import { isUpTask } from "./task-status.ts";

export interface SwarmRuntimeOptions
  extends
    Pick<ContainerRuntimeOptions, "engine" | "events" | "state" | "programs" | "isInsecure" | "log">,
    ContainerConfigsOptions {
  credentialsOf: CredentialsOf;
}

interface Launched {
  readonly serviceId: string;
  /** Ids of the tasks that were there before. */
  readonly earlier: ReadonlySet<string>;
}

const pollMs = 2_000;
const startPollMs = 300;
/** A node may have to pull the image first. */
const startTimeoutMs = 10 * 60_000;
/** So long no node may suit, as when one has only just come back. */
const pendingMs = 10_000;
const stopMarginMs = 20_000;
const goneTimeoutMs = 30_000;

export class SwarmRuntime implements AppRuntime {
  readonly images: ImageRuntime;
  readonly #options: SwarmRuntimeOptions;
  readonly #api: SwarmApi;
  readonly #images: AppImages;
  readonly #configs: ContainerConfigs;
  readonly #sampler: ContainerSampler;
  readonly #apps = new Map<string, SwarmApp>();
  readonly #listeners = new StatusListeners();
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
    this.#options = options;
    this.#api = new SwarmApi(options);
    this.#images = new AppImages(options);
    this.images = new DockerImages({ ...options, images: this.#images });
    this.#configs = new ContainerConfigs(options, this.#images);
    this.#sampler = new ContainerSampler(options);
    this.#ticker = new Ticker(pollMs, () => this.#poll());
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    await this.#api.managerId();
    await this.check(app);
    await this.#images.provide(app, work);
    for (const [name, path] of Object.entries(handedTo(app).env)) {
      const message = `On a swarm ${name.slice(0, -"_FILE".length)} is handed over as a file: ${name}=${path}`;
      work.onProgress?.({ step: "secrets", message });
    }
  }

  async settle(app: RunnableApp): Promise<void> {
    await this.#images.removeBuilt(app, [this.#images.reference(app)]);
    await this.#api.removeHanded(app.id);
  }

  async check(app: RunnableApp): Promise<void> {
    const config = await this.#configs.of(app, "");
    await this.#configs.requireAllowed(app, config);
    requirePlaceable(app, config, this.#options);
    handedTo(app);
  }

  async start(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    try {
      await this.#untilUp(app, watched, await this.#launch(app, watched));
    } catch (error) {
      await this.#giveUp(app, watched, error);
      throw error;
    }
  }

  /** Has the service be there; resolves with its id and the tasks that it had before. */
  async #launch(app: RunnableApp, watched: SwarmApp): Promise<Launched> {
    const name = this.#options.networks.nameOf(app.id);
    const nodeId = await this.#api.managerId();
    const spec = await this.#specOf(app, nodeId);
    await this.#api.ensureNetwork(name, appLabels(app.id, this.#options.storeId));
    const credentials = await this.#options.credentialsOf(app.ownerUid, this.#images.reference(app));
    const existing = await this.#runningService(app, watched);
    const earlier = new Set(watched.tasks.map(({ id }) => id));
    if (existing !== undefined) await this.#api.update(existing, spec, credentials);
    const serviceId = existing?.id ?? (await this.#api.create(spec, credentials));
    watched.want(app);
    return { serviceId, earlier };
  }

  /** One of which nothing runs any more goes: its tasks' ends would be taken for those of the next start. */
  async #runningService(app: RunnableApp, watched: SwarmApp): Promise<SwarmService | undefined> {
    const service = await this.#api.service(this.#options.networks.nameOf(app.id));
    if (service === undefined) return undefined;
    await this.#look();
    if (watched.tasks.some((task) => task.serviceId === service.id && isUpTask(task))) return service;
    await this.stop(app);
    return undefined;
  }

  /** Has nothing stay of a start that failed: half an app would look like one. */
  async #giveUp(app: RunnableApp, watched: SwarmApp, error: unknown): Promise<void> {
    const reason = error instanceof SvcError ? (error as SvcError).reason : undefined;
    if (reason === "unavailable") {
      // Once the swarm is back, the app is seen to be missing, and started.
      watched.want(app);
      await this.#look().catch(() => undefined);
    } else watched.release();
    try {
      if (reason === "start_failed") await this.stop(app);
      await this.#api.removeHanded(app.id);
    } catch (failure) {
      this.#options.log("what a start on the swarm left could not be removed", {
        app: app.id,
        error: failure,
      });
    }
  }

  async #specOf(app: RunnableApp, nodeId: string): Promise<ServiceSpec> {
    let local = await this.#images.local(app);
    if (local === undefined) {
      // Somebody has removed it.
      await this.#images.provide(app, {});
      local = await this.#images.local(app);
    }
    if (local === undefined) throw new Error(`the image of app "${app.id}" is gone as soon as it was there`);
    const config = await this.#configs.of(app, local.Id);
    await this.#configs.hold(app, config);
    requirePlaceable(app, config, this.#options);
    const handed = handedTo(app);
    const { storeId, identities } = this.#options;
    const { user: owner } = await identities.as(app.uid);
    // Root's containers may run as whatever user their image names.
    const mode = app.ownerUid === 0 ? 0o444 : 0o400;
    const given = await handOver(this.#api, handed.files, {
      labels: appLabels(app.id, storeId),
      owner,
      mode,
    });
    return serviceSpec(app, config, {
      ...{ storeId, nodeId, handed, given },
      name: this.#options.networks.nameOf(app.id),
      image: serviceImage(app, this.#images.reference(app), local),
    });
  }

  /** Resolves when as many tasks run as are to. @throws SvcError `start_failed` with the swarm's words */
  async #untilUp(app: RunnableApp, watched: SwarmApp, { serviceId, earlier }: Launched): Promise<void> {
    const begunMs = Date.now();
    const { replicas } = placementOf(app);
    for (;;) {
      await this.#look();
      const ofService = watched.tasks.filter((task) => task.serviceId === serviceId);
      if (ofService.filter((task) => isUpTask(task)).length >= replicas) return;
      const tasks = ofService.filter(({ id }) => !earlier.has(id));
      const bad = tasks.find(({ state }) => state === "failed" || state === "rejected");
      const isOver = watched.status.state === "CRASHED" || watched.status.state === "STOPPED";
      const waited = Date.now() - begunMs;
      const stuck = tasks.find(
        ({ state, error }) => state === "pending" && error !== "" && waited > pendingMs,
      );
      const hasEnded = isOver || waited > startTimeoutMs;
      const why = bad ?? stuck ?? (hasEnded ? tasks[0] : undefined);
      if (hasEnded && why === undefined) {
        throw startFailed(app.id, watched.status.reason || "the swarm made no task of it");
      }
      if (why !== undefined) {
        const lastLines = bad === undefined ? [] : await this.#lastLines(app);
        const at = why.node === "" ? "" : ` on ${why.node}`;
        const words = why.error === "" ? `its task is ${why.state}` : why.error;
        const { exitCode } = why;
        throw startFailed(app.id, `${words}${at}`, { exitCode: bad && exitCode, lastLines });
      }
      await sleep(startPollMs);
    }
  }

  async #lastLines(app: RunnableApp): Promise<string[]> {
    const { lines } = await this.logs(app, { tail: 20 }).catch(() => ({ lines: [] }));
    return lines.map(({ text }) => text);
  }

  async scale(app: RunnableApp): Promise<void> {
    requireFewTasks(app);
    const { replicas } = placementOf(app);
    const service = await this.#api.service(this.#options.networks.nameOf(app.id));
    if (service === undefined) return;
    await this.#api.update(service, { ...service.spec, Mode: { Replicated: { Replicas: replicas } } });
    await this.#look();
  }

  async waitHealthy(id: string, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const app = this.#apps.get(id);
    if (app === undefined) throw appNotRunning(id);
    await app.waitHealthy(timeoutMs, signal);
  }

  async stop(app: RunnableApp): Promise<void> {
    const watched = this.#appOf(app.id);
    watched.release();
    if (!(await this.#api.isMember())) {
      watched.take(undefined, []);
      return;
    }
    const service = await this.#api.service(this.#options.networks.nameOf(app.id));
    if (service !== undefined) await this.#api.removeService(service.id);
    await this.#untilGone(app);
  }

  /** Of a node that does not answer nobody can tell: the swarm ends what runs there when it is back. */
  async #untilGone(app: RunnableApp): Promise<void> {
    const deadlineMs = Date.now() + app.manifest.stop.graceMs + stopMarginMs;
    for (;;) {
      await this.#look();
      const states = new Map((await this.#api.nodes()).map(({ id, state }) => [id, state]));
      const left = (this.#apps.get(app.id)?.tasks ?? []).filter(
        ({ state, nodeId }) => ["running", "starting"].includes(state) && states.get(nodeId) === "ready",
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

  status(id: string): RuntimeStatus | undefined {
    return this.#apps.get(id)?.status;
  }

  get revision(): number {
    return this.#listeners.revision;
  }

  onChange(listener: (id: string) => void): Disposable {
    return this.#listeners.listen(listener);
  }

  async remove(app: RunnableApp): Promise<number> {
    if (await this.#api.isMember()) await this.#removeFromSwarm(app);
    const freed = await this.#images.removeBuilt(app, []);
    if (this.#apps.delete(app.id)) this.#listeners.changed();
    return freed;
  }

  async #removeFromSwarm(app: RunnableApp): Promise<void> {
    const name = this.#options.networks.nameOf(app.id);
    const service = await this.#api.service(name);
    if (service !== undefined) await this.stop(app);
    const deadlineMs = Date.now() + goneTimeoutMs;
    for (;;) {
      try {
        // Its last task may have just ended.
        await this.#api.removeNetwork(name);
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
    const service = await this.#api.service(this.#options.networks.nameOf(app.id));
    if (service === undefined) return { lines: [], truncated: false, missedBytes: 0 };
    const tasks = (await this.#api.tasks()).filter(({ serviceId }) => serviceId === service.id);
    const hasTerminal = hasOwnTerminal(app.manifest);
    return readServiceLog(this.#options.engine, service.id, { tail, tasks, hasTerminal, signal });
  }

  async *followLogs(
    app: RunnableApp,
    { tail, signal }: { tail: number; signal: AbortSignal },
  ): AsyncGenerator<LogChunk, void> {
    const service = await this.#api.service(this.#options.networks.nameOf(app.id));
    if (service === undefined) return;
    const watched = this.#appOf(app.id);
    await this.#look();
    const hasTerminal = hasOwnTerminal(app.manifest);
    const tasksNow = (): readonly SwarmTask[] => watched.tasks;
    yield* followServiceLog(this.#options.engine, service.id, { tail, tasksNow, hasTerminal, signal });
  }

  /** Of the task on this machine: others' nodes have doors of their own. */
  async openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    const { engine, events, programs } = this.#options;
    await this.#options.state.containers();
    const [container] = this.#localOf(app.id);
    const elsewhere = (this.status(app.id)?.tasks ?? []).filter(({ state }) => state === "running");
    if (container === undefined && elsewhere.length > 0) {
      const nodes = [...new Set(elsewhere.map(({ node }) => node))].join(", ");
      throw new SvcError("not_possible", `app "${app.id}" runs on ${nodes}: open its terminal there`);
    }
    const onDeath = events.onDeath.bind(events);
    const running = container === undefined ? [] : [container];
    return openAppTerminal(engine, app, running, { sizes: this.#sizes, onDeath, programs }, request);
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
    const known = this.#apps.get(id);
    if (known !== undefined) return known;
    const app = new SwarmApp(id, () => {
      this.#listeners.changed();
      this.#listeners.tell(id);
    });
    this.#options.state.start();
    this.#apps.set(id, app);
    this.#listeners.changed();
    return app;
  }

  async #poll(): Promise<void> {
    const isAnyWanted = [...this.#apps.values()].some(({ isWanted }) => isWanted);
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
      this.#inService === undefined ||
      [...this.#inService].some((id) => this.#apps.get(id)?.isWanted !== true)
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
      const serviceOf = new Map(services.map((service) => [service.appId, service]));
      const tasksOf = Map.groupBy(tasks, ({ appId }) => appId);
      this.#inService = new Set(serviceOf.keys());
      this.#isAway = false;
      for (const [id, app] of this.#apps) app.take(serviceOf.get(id), tasksOf.get(id) ?? []);
    } catch (error) {
      this.#inService = undefined;
      // Each app shows it for as long as it is so.
      if (!this.#isAway) this.#options.log("the swarm cannot be asked", { error });
      this.#isAway = true;
      const { message } = error as Error;
      for (const app of this.#apps.values()) app.lost(message);
      throw error;
    }
  }

  /** Lets go of all apps, which go on. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ticker[Symbol.asyncDispose]();
    this.#apps.clear();
  }
}
