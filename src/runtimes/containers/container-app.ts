import { isUpState, type ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";
import { AppContainers, type AppContainersOptions } from "./app-containers.ts";
import { ContainerRestarts } from "./container-restarts.ts";
import { portHealth } from "../port-health.ts";
import { followPort, type PortProbe } from "../port-probe.ts";
import { probedHost, type PublishOptions } from "./published-ports.ts";
import type { RuntimeStatus } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { ObservedContainers, type ObservedContainersOptions } from "./observed-containers.ts";
import { runsAsStarted } from "../settings-digest.ts";
import { untilSettled } from "./starting-containers.ts";
import { releaseOf, blockedContainer } from "./blocked-containers.ts";
import { ObservedApp } from "./observed-app.ts";
import { initialMode, mayRestart, statusIn, transitions, type ContainerMode } from "./container-mode.ts";
import { awaitedIn, unknownParts, type AwaitedParts } from "./container-status.ts";

export interface ContainerAppOptions
  extends AppContainersOptions, Omit<ObservedContainersOptions, "containers">, PublishOptions {
  /** An app that ends within this time after its start has failed to start. */
  settleMs: number;
  /** Whether the app may have several containers. */
  hasParts: boolean;
  /** Checks whether a container of the app may start again. @throws SvcError `denied` */
  checkAgain: (app: RunnableApp) => Promise<void>;
  /** Replaces a container that the engine cannot start any more. */
  replace: (app: RunnableApp, container: ContainerRecord) => Promise<void>;
  /** The services to restart after a container, in order, such as those that share its network. */
  dependentsOf: (app: RunnableApp, container: ContainerRecord) => Promise<readonly string[]>;
  /** Called when the status changes. */
  onChange: () => void;
}

/** Milliseconds between updates of the services that a start waits for. */
const reportEveryMs = 1_000;

/**
 * The containers of one app. The containers of the current release are the app; those of other releases are kept
 * until an upgrade is verified. Callers run only one operation at a time; watching continues all the time.
 */
export class ContainerApp extends ObservedApp {
  readonly containers: AppContainers;
  readonly #options: ContainerAppOptions;
  #app: RunnableApp | undefined;
  #release: string | undefined;
  #mode: ContainerMode = initialMode;
  /** Containers of the current release. */
  readonly #seen: ObservedContainers;
  readonly #restarts: ContainerRestarts;
  #probe: PortProbe | undefined;
  /** Services that the current start waits for. */
  #awaited: AwaitedParts = unknownParts;
  /** Ends the wait of the current start: one of its containers failed. */
  #onFailure: (() => void) | undefined;
  /** IDs of containers of other releases that are being ended. */
  readonly #ending = new Set<string>();

  constructor(id: string, options: ContainerAppOptions) {
    super(id, options.onChange);
    this.containers = new AppContainers(id, options);
    this.#options = options;
    this.#seen = new ObservedContainers({ containers: this.containers, lastLines: options.lastLines });
    this.#restarts = new ContainerRestarts({
      restart: (container) => this.#restart(container),
      onChange: () => this.#publish(),
    });
  }

  /** The app's containers, as last observed. */
  get members(): readonly ContainerRecord[] {
    return this.#seen.members;
  }

  /**
   * Starts the containers of a release and stops those of others; resolves when they have run for a while.
   * @param launch starts them and resolves to the IDs of created containers
   * @throws SvcError `start_failed` with exit code and last lines; `unavailable`
   */
  async start(app: RunnableApp, release: string, launch: () => Promise<readonly string[]>): Promise<void> {
    this.#app = app;
    const { graceMs } = app.manifest.stop;
    await this.#during(transitions.start(this.#mode), async () => {
      await this.#restarts.reset();
      // The engine may still be ending other containers of the app.
      if (this.#mode.isUnfinished && this.#options.hasParts) await this.containers.endAll(graceMs);
      for (const container of await this.containers.all()) {
        const isOther = releaseOf(container) !== release;
        if (isOther && isUpState(container.state)) await this.containers.stop(container.id, graceMs);
      }
      this.#seen.beginRun(await this.containers.listed("all"));
      this.#release = release;
      this.#mode = transitions.launch(this.#mode);
      await this.#launch(app, launch);
    });
  }

  async #launch(app: RunnableApp, launch: () => Promise<readonly string[]>): Promise<void> {
    const failed = Promise.withResolvers<undefined>();
    this.#onFailure = () => failed.resolve(undefined);
    try {
      await untilSettled(app, launch, failed.promise, {
        ...{ containers: this.containers, seen: this.#seen, settleMs: this.#options.settleMs },
        refresh: (made) => this.#refresh(made),
      });
      this.#mode = transitions.finish(this.#mode);
    } catch (error) {
      const isRejected = error instanceof SvcError && error.reason === "start_failed";
      if (isRejected) this.#mode = transitions.rejectStart(this.#mode);
      throw error;
    } finally {
      this.#onFailure = undefined;
    }
  }

  /**
   * Ends the app's running containers; resolves when none is left.
   * @param depthOf length of a service's dependency chain: services with the longest end first, equal ones together
   */
  async stop(app: RunnableApp, depthOf: (service: string) => number = () => 0): Promise<void> {
    this.#app = app;
    await this.#during(transitions.stop(this.#mode, this.#options.hasParts), async () => {
      await this.#restarts.reset();
      await this.containers.endInTurn(app.manifest.stop.graceMs, depthOf);
      this.#mode = transitions.finish(this.#mode);
    });
  }

  /** Prevents starts of its containers until {@link thaw}, or its next start or stop. */
  async freeze(ids: readonly string[]): Promise<void> {
    this.#mode = transitions.freeze(this.#mode);
    await Promise.all(ids.map((id) => this.containers.pause(id)));
    await this.#observe(await this.#refresh([]));
  }

  async thaw(ids: readonly string[]): Promise<boolean> {
    const wasPaused = await Promise.all(ids.map((id) => this.containers.unpause(id)));
    this.#mode = transitions.rest(this.#mode);
    await this.#observe(await this.#refresh([]));
    return wasPaused.every(Boolean);
  }

  async #during(mode: ContainerMode, work: () => Promise<void>): Promise<void> {
    this.#mode = mode;
    this.#awaited = unknownParts;
    this.#publish();
    const isReported = mode.work === "starting" && this.#options.hasParts;
    const timer = isReported ? setInterval(() => this.#reportStart(), reportEveryMs) : undefined;
    try {
      await work();
    } finally {
      clearInterval(timer);
      this.#mode = transitions.rest(this.#mode);
      const fresh = await this.#refresh([]).catch(() => undefined);
      await (fresh ? this.#observe(fresh) : this.observe());
    }
  }

  #reportStart(): void {
    this.#awaited = awaitedIn(this.containers.known());
    this.#publish();
  }

  /**
   * Determines which containers of the app run, and watches them from now on. The reasons of earlier exits are
   * unknown.
   * @param wasCut an earlier daemon ended while it stopped or started the app
   */
  async reattach(app: RunnableApp, wasCut = false): Promise<"running" | "lost"> {
    this.#app = app;
    this.#mode = transitions.reattach(this.#mode, wasCut && this.#options.hasParts);
    try {
      return await this.#findOut();
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "unavailable") throw error;
      // The app may run; the next connection to the engine settles it.
      this.onEngineLost(error as SvcError);
      return "running";
    }
  }

  async #findOut(): Promise<"running" | "lost"> {
    const app = this.#app;
    const up = (await this.containers.all()).filter(({ state }) => isUpState(state));
    const found = up.findLast(({ labels }) => app === undefined || runsAsStarted(app, labels));
    this.#mode = transitions.find(this.#mode, found !== undefined);
    if (found === undefined) {
      this.#publish();
      return "lost";
    }
    this.#release = releaseOf(found);
    await this.observe();
    return this.#mode.isLost ? "lost" : "running";
  }

  /** The engine was unreachable, so the app must be started when it is back. */
  awaitEngine(app: RunnableApp, error: SvcError): void {
    this.#app = app;
    this.#mode = transitions.find(transitions.reattach(this.#mode, false), anyUp(this.members));
    if (this.#options.state.isAvailable) this.#publish();
    else this.onEngineLost(error);
  }

  /** The engine is unreachable. */
  onEngineLost(error: SvcError): void {
    this.#mode = transitions.loseEngine(this.#mode, error);
    void this.#restarts.suspend();
    this.#publish();
  }

  /**
   * The engine is back. If no container runs except finished ones, the engine's end also ended the app, which must be
   * started again, as after an interrupted start or stop.
   */
  async onEngineBack(): Promise<void> {
    this.#mode = transitions.regainEngine(this.#mode);
    if (this.#release !== undefined) {
      const members = this.containers.knownOf(this.#release) ?? [];
      const isOver = members.length > 0 && members.every((each) => this.#restarts.endOf(each) !== undefined);
      this.#mode = transitions.find(this.#mode, anyUp(members), isOver);
    } else if (this.#mode.shouldRun) await this.#findOut();
    await this.observe();
  }

  noteStart(containerId: string): void {
    this.#seen.noteStart(containerId);
  }

  noteKill(containerId: string): void {
    this.#seen.noteKill(containerId);
  }

  /** A process of this container ended. */
  noteDeath(containerId: string, exitCode: number): void {
    if (!this.#mode.shouldRun) return;
    const isOfThisRun = this.#seen.noteDeath(containerId, exitCode);
    // A service that has finished its work may end at once.
    if (isOfThisRun && exitCode !== 0) this.#onFailure?.();
  }

  /** Applies the current state of the containers. */
  async observe(): Promise<void> {
    const known = this.#release === undefined ? undefined : this.containers.knownOf(this.#release);
    if (known === undefined) this.#publish();
    else await this.#observe(known);
  }

  async #observe(members: readonly ContainerRecord[]): Promise<void> {
    const isLatest = await this.#seen.take(members, this.#app, this.#mode.shouldRun);
    if (!isLatest) return;
    this.#mode = transitions.observe(this.#mode, anyUp(members));
    this.#judgeEnds();
    this.#watchPort();
    this.#publish();
  }

  /** Restarts containers that ended and should run, and ends those of other releases. */
  #judgeEnds(): void {
    if (this.#app === undefined || !this.#mayRestart()) return;
    this.#endOtherReleases(this.#app.manifest.stop.graceMs);
    for (const container of this.members) {
      if (isUpState(container.state)) this.#restarts.runs(container);
      if (container.state !== "exited") continue;
      this.#restarts.judge(container, this.#app.manifest.restart, this.#seen.wasKilled(container.id));
    }
  }

  /**
   * Stops running containers of other releases: started by another client, they would occupy the ports with other
   * settings. The next call retries those that could not be stopped.
   */
  #endOtherReleases(graceMs: number): void {
    if (this.#release === undefined) return;
    for (const container of this.containers.known()) {
      const { id, state } = container;
      if (!isUpState(state) || releaseOf(container) === this.#release || this.#ending.has(id)) continue;
      this.#ending.add(id);
      const forget = (): boolean => this.#ending.delete(id);
      this.containers.stop(id, graceMs).then(forget, forget);
    }
  }

  #mayRestart(): boolean {
    return mayRestart(this.#mode) && this.#seen.exceededLimit === undefined;
  }

  async #restart(container: ContainerRecord): Promise<void> {
    const { id } = container;
    if (this.#app === undefined || !this.#mayRestart()) return;
    await this.#options.checkAgain(this.#app);
    if (!this.#mayRestart()) return;
    let isReplaced = false;
    try {
      await this.containers.start(id);
    } catch (error) {
      if (blockedContainer(error) !== id) throw error;
      await this.#options.replace(this.#app, container);
      isReplaced = true;
    }
    await this.#restartDependents(this.#app, container, isReplaced);
  }

  /** A container that shares the network of a replaced one must be replaced, too: it refers to the other by its ID. */
  async #restartDependents(app: RunnableApp, container: ContainerRecord, isReplaced: boolean): Promise<void> {
    for (const service of await this.#options.dependentsOf(app, container)) {
      for (const member of this.members.filter((each) => each.composeService === service)) {
        if (!isUpState(member.state)) continue;
        if (!this.#mayRestart()) return;
        if (isReplaced) await this.#options.replace(app, member);
        else await this.containers.restart(member.id, app.manifest.stop.graceMs);
      }
    }
  }

  #watchPort(): void {
    const app = this.#app;
    this.#probe = followPort(this.#probe, this.#seenStatus(), {
      specOf: () => app && portHealth(app),
      hostOf: (port) => probedHost(port, this.members),
      onChange: () => this.#publish(),
    });
    this.#probe?.hold(this.members.some(({ state }) => state === "paused"));
  }

  /** The containers whose logs belong to the app: those that ran last. @throws SvcError `unavailable` */
  async logSources(): Promise<readonly ContainerRecord[]> {
    return this.members.length > 0 ? this.members : this.containers.lastStarted();
  }

  detach(): void {
    this.#probe?.[Symbol.dispose]();
    this.#probe = undefined;
    this.#release = undefined;
    this.#mode = transitions.detach(this.#mode);
    void this.#restarts.suspend();
    this.#seen.abandon();
  }

  #publish(): void {
    this.setStatus(statusIn(this.#mode, this.#seenStatus(), anyUp(this.members), this.#awaited));
  }

  #seenStatus(): RuntimeStatus {
    return this.#seen.status(this.#mode.shouldRun, this.#probe, this.#restarts);
  }

  /** Loads the current containers of the release, including new ones. */
  async #refresh(made: readonly string[]): Promise<ContainerRecord[]> {
    return this.containers.refreshOf(this.#release, [...this.members.map(({ id }) => id), ...made]);
  }
}

function anyUp(containers: readonly ContainerRecord[]): boolean {
  return containers.some(({ state }) => isUpState(state));
}
