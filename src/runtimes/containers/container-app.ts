import { isUpState, type ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";
import { AppContainers, type AppContainersOptions } from "./app-containers.ts";
import { ContainerRestarts } from "./container-restarts.ts";
import { portHealth } from "../port-health.ts";
import { followPort, type PortProbe } from "../port-probe.ts";
import { probedHost, type PublishOptions } from "./published-ports.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { ObservedContainers, type ObservedContainersOptions } from "./observed-containers.ts";
import { runsAsStarted } from "../settings-digest.ts";
import { StartingContainers } from "./starting-containers.ts";
import { OtherReleases } from "./other-releases.ts";
import { releaseOf, blockedContainer } from "./blocked-containers.ts";
import { ObservedApp } from "./observed-app.ts";

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

/**
 * The containers of one app. The containers of the current release are the app; those of other releases are kept
 * until an upgrade is verified. Callers run only one operation at a time; watching continues all the time.
 */
export class ContainerApp extends ObservedApp {
  readonly containers: AppContainers;
  readonly #options: ContainerAppOptions;
  #app: RunnableApp | undefined;
  #release: string | undefined;
  /** Whether the app should run. */
  #shouldRun = false;
  /** Containers of the current release. */
  readonly #seen: ObservedContainers;
  readonly #restarts: ContainerRestarts;
  /** Shown instead of the engine's state during an operation. */
  #transition: RuntimeStatus | undefined;
  #probe: PortProbe | undefined;
  #engineError: SvcError | undefined;
  /** The app was ended by the engine's end, not by itself, and must be started again. */
  #isLost = false;
  /** A start or stop was interrupted: the app may run only in part, or differ from its record. */
  #isUnfinished = false;
  #isFrozen = false;
  readonly #orphans: OtherReleases;
  readonly #starting: StartingContainers;

  constructor(id: string, options: ContainerAppOptions) {
    super(id, options.onChange);
    this.containers = new AppContainers(id, options);
    this.#options = options;
    this.#seen = new ObservedContainers({ containers: this.containers, lastLines: options.lastLines });
    this.#starting = new StartingContainers({ ...options, containers: this.containers, seen: this.#seen });
    this.#restarts = new ContainerRestarts({
      restart: (container) => this.#restart(container),
      onChange: () => this.#publish(),
    });
    this.#orphans = new OtherReleases(this.containers);
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
    this.#shouldRun = true;
    this.#isLost = false;
    const { graceMs } = app.manifest.stop;
    await this.#during("STARTING", async () => {
      try {
        await this.#restarts.reset();
        this.#seen.beginRun();
        // The engine may still be ending other containers of the app.
        if (this.#isUnfinished && this.#options.hasParts) await this.containers.endAll(graceMs);
        for (const container of await this.containers.all()) {
          const isOther = releaseOf(container) !== release;
          if (isOther && isUpState(container.state)) await this.containers.stop(container.id, graceMs);
        }
        this.#release = release;
        this.#isUnfinished = true;
        await this.#starting.settle(app, launch, (made) => this.#refresh(made));
        this.#isUnfinished = false;
      } catch (error) {
        // The containers that had started were ended.
        if (error instanceof SvcError && error.reason === "start_failed")
          this.#shouldRun = this.#isUnfinished = false;
        throw error;
      }
    });
  }

  /**
   * Ends the app's running containers; resolves when none is left.
   * @param depthOf length of a service's dependency chain: services with the longest end first, equal ones together
   */
  async stop(app: RunnableApp, depthOf: (service: string) => number = () => 0): Promise<void> {
    this.#app = app;
    this.#shouldRun = false;
    this.#isLost = false;
    await this.#during("STOPPING", async () => {
      await this.#restarts.reset();
      this.#isUnfinished = this.#options.hasParts;
      await this.containers.endInTurn(app.manifest.stop.graceMs, depthOf);
      this.#isUnfinished = false;
    });
  }

  /** Prevents starts of its containers until {@link thaw}. */
  async freeze(ids: readonly string[]): Promise<void> {
    this.#isFrozen = true;
    await Promise.all(ids.map((id) => this.containers.pause(id)));
    await this.#observe(await this.#refresh([]));
  }

  async thaw(ids: readonly string[]): Promise<boolean> {
    const wasPaused = await Promise.all(ids.map((id) => this.containers.unpause(id)));
    this.#isFrozen = false;
    await this.#observe(await this.#refresh([]));
    return wasPaused.every(Boolean);
  }

  async #during(state: "STARTING" | "STOPPING", work: () => Promise<void>): Promise<void> {
    this.#transition = { ...stoppedStatus, state };
    this.#publish();
    try {
      await work();
    } finally {
      this.#transition = undefined;
      const fresh = await this.#refresh([]).catch(() => undefined);
      await (fresh ? this.#observe(fresh) : this.observe());
    }
  }

  /**
   * Determines which containers of the app run, and watches them from now on. The reasons of earlier exits are
   * unknown.
   * @param wasCut an earlier daemon ended while it stopped or started the app
   */
  async adopt(app: RunnableApp, wasCut = false): Promise<"running" | "lost"> {
    this.#app = app;
    this.#shouldRun = true;
    this.#isUnfinished ||= wasCut && this.#options.hasParts;
    try {
      return await this.#findOut();
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "unavailable") throw error;
      // The app may run; the next connection to the engine settles it.
      this.engineLost(error as SvcError);
      return "running";
    }
  }

  async #findOut(): Promise<"running" | "lost"> {
    const app = this.#app;
    const up = (await this.containers.all()).filter(({ state }) => isUpState(state));
    const found = up.findLast(({ labels }) => app === undefined || runsAsStarted(app, labels));
    this.#isLost = found === undefined || this.#isUnfinished;
    if (found === undefined) {
      this.#publish();
      return "lost";
    }
    this.#release = releaseOf(found);
    await this.observe();
    return this.#isLost ? "lost" : "running";
  }

  /** The engine was unreachable, so the app must be started when it is back. */
  awaitEngine(app: RunnableApp, error: SvcError): void {
    this.#app = app;
    this.#shouldRun = true;
    this.#isLost = this.#isUnfinished || !anyUp(this.members);
    if (this.#options.state.isAvailable) this.#publish();
    else this.engineLost(error);
  }

  /** The engine is unreachable. */
  engineLost(error: SvcError): void {
    this.#engineError = error;
    void this.#restarts.suspend();
    this.#publish();
  }

  /**
   * The engine is back. If no container runs except finished ones, the engine's end also ended the app, which must be
   * started again, as after an interrupted start or stop.
   */
  async engineBack(): Promise<void> {
    this.#engineError = undefined;
    if (this.#release !== undefined) {
      const members = this.containers.knownOf(this.#release) ?? [];
      const isOver = members.length > 0 && members.every((each) => this.#restarts.endOf(each) !== undefined);
      this.#isLost = this.#shouldRun && (anyUp(members) ? this.#isUnfinished : !isOver);
    } else if (this.#shouldRun) await this.#findOut();
    await this.observe();
  }

  started(containerId: string): void {
    this.#seen.started(containerId);
  }

  killed(containerId: string): void {
    this.#seen.killed(containerId);
  }

  /** A process of this container ended. */
  died(containerId: string, exitCode: number): void {
    if (!this.#shouldRun) return;
    this.#seen.died(containerId, exitCode);
    // A service that has finished its work may end at once.
    if (exitCode !== 0) this.#starting.died();
  }

  /** Applies the current state of the containers. */
  async observe(): Promise<void> {
    const known = this.#release === undefined ? undefined : this.containers.knownOf(this.#release);
    if (known === undefined) this.#publish();
    else await this.#observe(known);
  }

  async #observe(members: readonly ContainerRecord[]): Promise<void> {
    const isLatest = await this.#seen.take(members, this.#app, this.#shouldRun);
    if (!isLatest) return;
    if (anyUp(members) && !this.#isUnfinished) this.#isLost = false;
    this.#judgeEnds();
    this.#watchPort();
    this.#publish();
  }

  /** Restarts containers that ended and should run, and ends those of other releases. */
  #judgeEnds(): void {
    if (this.#app === undefined || !this.#mayRestart()) return;
    if (this.#release !== undefined) this.#orphans.end(this.#release, this.#app.manifest.stop.graceMs);
    for (const container of this.members) {
      if (isUpState(container.state)) this.#restarts.runs(container);
      if (container.state !== "exited") continue;
      this.#restarts.judge(container, this.#app.manifest.restart, this.#seen.wasKilled(container.id));
    }
  }

  #mayRestart(): boolean {
    if (!this.#shouldRun || this.#isLost || this.#seen.exceededLimit !== undefined) return false;
    return this.#transition === undefined && this.#engineError === undefined && !this.#isFrozen;
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
    this.#shouldRun = false;
    void this.#restarts.suspend();
    this.#seen.abandon();
  }

  #publish(): void {
    this.setStatus(this.#currentStatus());
  }

  #currentStatus(): RuntimeStatus {
    if (this.#transition !== undefined) return this.#transition;
    const isConcerned = this.#shouldRun || anyUp(this.members);
    if (this.#engineError !== undefined && isConcerned) {
      return { ...stoppedStatus, state: "UNKNOWN", reason: this.#engineError.message };
    }
    const isUnfinished = this.#isUnfinished && anyUp(this.members);
    const reason = isUnfinished
      ? "its start or stop was interrupted"
      : "it was ended by the end of the container engine";
    if (this.#isLost) return { ...stoppedStatus, reason, isLost: true };
    return isUnfinished ? { ...this.#seenStatus(), reason, isPartial: true } : this.#seenStatus();
  }

  #seenStatus(): RuntimeStatus {
    return this.#seen.status(this.#shouldRun, this.#probe, this.#restarts);
  }

  /** Loads the current containers of the release, including new ones. */
  async #refresh(made: readonly string[]): Promise<ContainerRecord[]> {
    return this.containers.refreshOf(this.#release, [...this.members.map(({ id }) => id), ...made]);
  }
}

function anyUp(containers: readonly ContainerRecord[]): boolean {
  return containers.some(({ state }) => isUpState(state));
}
