import { isUpState, type ContainerRecord } from "../docker/container-record.ts";
import { SvcError } from "../errors.ts";
import { AppContainers, type AppContainersOptions } from "./app-containers.ts";
import { ContainerRestarts } from "./container-restarts.ts";
import { portHealth } from "./port-health.ts";
import { followPort, type PortProbe } from "./port-probe.ts";
import { publishedPorts, type PublishOptions } from "./published-ports.ts";
import { stoppedStatus, type RunnableApp, type RuntimeStatus } from "./runtime.ts";
import { SeenContainers, type SeenContainersOptions } from "./seen-containers.ts";
import { runsAsStarted } from "./settings-digest.ts";
import { StartingContainers } from "./starting-containers.ts";
import { StrayContainers } from "./stray-containers.ts";
import { releaseOf, stuckContainer } from "./stuck-containers.ts";
import { ToldApp } from "./told-app.ts";

export interface ContainerAppOptions
  extends AppContainersOptions, Omit<SeenContainersOptions, "containers">, PublishOptions {
  /** An app that ends this soon after its start has failed to start. */
  settleMs: number;
  /** Whether it may be several containers. */
  hasParts: boolean;
  /** Finds out whether a container of the app may start again. @throws SvcError `denied` */
  checkAgain: (app: RunnableApp) => Promise<void>;
  /** Has another container run in the place of one that the engine cannot start any more. */
  replace: (app: RunnableApp, container: ContainerRecord) => Promise<void>;
  /** Called when the status is another one. */
  onChange: () => void;
}

/**
 * The containers of one app. Those of one release are the app, those of others wait for an upgrade to be proven.
 * Operations on it come one at a time, its owner sees to that; watching goes on all the time.
 */
export class ContainerApp extends ToldApp {
  readonly containers: AppContainers;
  readonly #options: ContainerAppOptions;
  #app: RunnableApp | undefined;
  #release: string | undefined;
  /** Whether svc means it to run. */
  #isWanted = false;
  /** Of the release. */
  readonly #seen: SeenContainers;
  readonly #restarts: ContainerRestarts;
  /** Shown instead of what the engine says, while an operation goes on. */
  #underway: RuntimeStatus | undefined;
  #probe: PortProbe | undefined;
  #engineError: SvcError | undefined;
  /** What ended of it did not do so by itself: the engine was away. It is to be started anew. */
  #isLost = false;
  /** A start or a stop of it has come to no end: what runs may be half of it, or not as its record says. */
  #isUnfinished = false;
  #isFrozen = false;
  readonly #strays: StrayContainers;
  readonly #starting: StartingContainers;

  constructor(id: string, options: ContainerAppOptions) {
    super(id, options.onChange);
    this.containers = new AppContainers(id, options);
    this.#options = options;
    this.#seen = new SeenContainers({ containers: this.containers, lastLines: options.lastLines });
    this.#starting = new StartingContainers({ ...options, containers: this.containers, seen: this.#seen });
    this.#restarts = new ContainerRestarts({
      restart: (container) => this.#restart(container),
      onChange: () => this.#publish(),
    });
    this.#strays = new StrayContainers(this.containers);
  }

  /** The containers that are the app, as last seen. */
  get members(): readonly ContainerRecord[] {
    return this.#seen.members;
  }

  /**
   * Has the containers of a release started, those of others stopped; resolves when they have run for a while.
   * @param launch starts them, and answers the ids of those that it has made
   * @throws SvcError `start_failed` with exit code and last lines; `unavailable`
   */
  async start(app: RunnableApp, release: string, launch: () => Promise<readonly string[]>): Promise<void> {
    this.#app = app;
    this.#isWanted = true;
    this.#isLost = false;
    const { graceMs } = app.manifest.stop;
    await this.#during("STARTING", async () => {
      try {
        await this.#restarts.reset();
        this.#seen.beginRun();
        // Of its rest the engine may have been told to end some, and still be at it.
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
        // Whatever had come up of it was ended.
        if (error instanceof SvcError && error.reason === "start_failed")
          this.#isWanted = this.#isUnfinished = false;
        throw error;
      }
    });
  }

  /**
   * Ends what runs of the app; resolves when nothing does.
   * @param depthOf how far a service is from those that depend on none: the deepest end first, equal ones together
   */
  async stop(app: RunnableApp, depthOf: (service: string) => number = () => 0): Promise<void> {
    this.#app = app;
    this.#isWanted = false;
    this.#isLost = false;
    await this.#during("STOPPING", async () => {
      await this.#restarts.reset();
      this.#isUnfinished = this.#options.hasParts;
      await this.containers.endInTurn(app.manifest.stop.graceMs, depthOf);
      this.#isUnfinished = false;
    });
  }

  /** Nothing of it is started until {@link thaw}. */
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
    this.#underway = { ...stoppedStatus, state };
    this.#publish();
    try {
      await work();
    } finally {
      this.#underway = undefined;
      const fresh = await this.#refresh([]).catch(() => undefined);
      await (fresh ? this.#observe(fresh) : this.observe());
    }
  }

  /**
   * Finds out what runs of the app, and watches it from now on. What ended while nobody watched did not say why.
   * @param wasCut an earlier daemon ended while it stopped or started it
   */
  async adopt(app: RunnableApp, wasCut = false): Promise<"running" | "lost"> {
    this.#app = app;
    this.#isWanted = true;
    this.#isUnfinished ||= wasCut && this.#options.hasParts;
    try {
      return await this.#findOut();
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "unavailable") throw error;
      // It may well run: the next connection to the engine tells.
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

  /** It could not be started, as the engine was away: it is to be started anew when that is back. */
  awaitEngine(app: RunnableApp, error: SvcError): void {
    this.#app = app;
    this.#isWanted = true;
    this.#isLost = this.#isUnfinished || !anyUp(this.members);
    if (this.#options.state.isAvailable) this.#publish();
    else this.engineLost(error);
  }

  /** The engine cannot be asked any more. */
  engineLost(error: SvcError): void {
    this.#engineError = error;
    void this.#restarts.suspend();
    this.#publish();
  }

  /**
   * The engine is back. Where nothing of the app runs that is not over by itself, the engine's end was its own, and it is to
   * be started anew, as it is where a start or a stop of it has come to no end.
   */
  async engineBack(): Promise<void> {
    this.#engineError = undefined;
    if (this.#release !== undefined) {
      const members = this.containers.knownOf(this.#release) ?? [];
      const isOver = members.length > 0 && members.every((each) => this.#restarts.endOf(each) !== undefined);
      this.#isLost = this.#isWanted && (anyUp(members) ? this.#isUnfinished : !isOver);
    } else if (this.#isWanted) await this.#findOut();
    await this.observe();
  }

  started(containerId: string): void {
    this.#seen.started(containerId);
  }

  killed(containerId: string): void {
    this.#seen.killed(containerId);
  }

  /** A process of this container has ended. */
  died(containerId: string, exitCode: number): void {
    if (!this.#isWanted) return;
    this.#seen.died(containerId, exitCode);
    // A service that has done its work may end at once.
    if (exitCode !== 0) this.#starting.died();
  }

  /** Takes up what is known of the containers now. */
  async observe(): Promise<void> {
    const known = this.#release === undefined ? undefined : this.containers.knownOf(this.#release);
    if (known === undefined) this.#publish();
    else await this.#observe(known);
  }

  async #observe(members: readonly ContainerRecord[]): Promise<void> {
    const isLatest = await this.#seen.take(members, this.#app, this.#isWanted);
    if (!isLatest) return;
    if (anyUp(members) && !this.#isUnfinished) this.#isLost = false;
    this.#judgeEnds();
    this.#watchPort();
    this.#publish();
  }

  /** Has those started again that ended and are to run, and those ended that are not the app. */
  #judgeEnds(): void {
    if (this.#app === undefined || !this.#mayRestart()) return;
    if (this.#release !== undefined) this.#strays.end(this.#release, this.#app.manifest.stop.graceMs);
    for (const container of this.members) {
      if (isUpState(container.state)) this.#restarts.runs(container);
      if (container.state !== "exited") continue;
      this.#restarts.judge(container, this.#app.manifest.restart, this.#seen.wasKilled(container.id));
    }
  }

  #mayRestart(): boolean {
    if (!this.#isWanted || this.#isLost || this.#seen.breach !== undefined) return false;
    return this.#underway === undefined && this.#engineError === undefined && !this.#isFrozen;
  }

  async #restart(container: ContainerRecord): Promise<void> {
    const { id } = container;
    if (this.#app === undefined || !this.#mayRestart()) return;
    await this.#options.checkAgain(this.#app);
    if (!this.#mayRestart()) return;
    try {
      await this.containers.start(id);
    } catch (error) {
      if (stuckContainer(error) !== id) throw error;
      await this.#options.replace(this.#app, container);
    }
  }

  #watchPort(): void {
    const app = this.#app;
    this.#probe = followPort(this.#probe, this.#seenStatus(), {
      specOf: () => app && portHealth(app, publishedPorts(app, this.#options)),
      onChange: () => this.#publish(),
    });
    this.#probe?.hold(this.members.some(({ state }) => state === "paused"));
  }

  /** The containers whose logs are the app's: those that ran last. @throws SvcError `unavailable` */
  async logSources(): Promise<readonly ContainerRecord[]> {
    return this.members.length > 0 ? this.members : this.containers.lastStarted();
  }

  detach(): void {
    this.#probe?.[Symbol.dispose]();
    this.#probe = undefined;
    this.#release = undefined;
    this.#isWanted = false;
    void this.#restarts.suspend();
    this.#seen.abandon();
  }

  #publish(): void {
    this.tell(this.#currentStatus());
  }

  #currentStatus(): RuntimeStatus {
    if (this.#underway !== undefined) return this.#underway;
    const isConcerned = this.#isWanted || anyUp(this.members);
    if (this.#engineError !== undefined && isConcerned) {
      return { ...stoppedStatus, state: "UNKNOWN", reason: this.#engineError.message };
    }
    const isUnfinished = this.#isUnfinished && anyUp(this.members);
    const reason = isUnfinished
      ? "its start or stop was cut short"
      : "it was ended with the container engine";
    if (this.#isLost) return { ...stoppedStatus, reason, isLost: true };
    return isUnfinished ? { ...this.#seenStatus(), reason, isPartial: true } : this.#seenStatus();
  }

  #seenStatus(): RuntimeStatus {
    return this.#seen.status(this.#isWanted, this.#probe, this.#restarts);
  }

  /** Those of the release as they are now, those that were just made included. */
  async #refresh(made: readonly string[]): Promise<ContainerRecord[]> {
    return this.containers.refreshOf(this.#release, [...this.members.map(({ id }) => id), ...made]);
  }
}

function anyUp(containers: readonly ContainerRecord[]): boolean {
  return containers.some(({ state }) => isUpState(state));
}
