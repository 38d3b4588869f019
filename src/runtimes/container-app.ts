import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { isMadeFor } from "../docker/attribution.ts";
import type { ContainerRecord } from "../docker/container-record.ts";
import type { EngineState } from "../docker/engine-state.ts";
import type { DockerEngine } from "../docker/engine.ts";
import { failedPrecondition, SvcError } from "../errors.ts";
import { strayMount } from "./bind-verification.ts";
import { endOf, isUpState, statusOf, stoppedStatus } from "./container-status.ts";
import { PortProbe, portHealthSpec } from "./port-probe.ts";
import type { RunnableApp, RuntimeStatus } from "./runtime.ts";
import { StatusChanges } from "./status-changes.ts";

/** The label that tells the containers of one configuration, image and version from those of others. */
export const releaseLabel = "svc.release";

export interface ContainerAppOptions {
  engine: DockerEngine;
  state: EngineState;
  storeId: string;
  /** An app that ends this soon after its start has failed to start. */
  settleMs: number;
  /** When the host was booted, unix milliseconds. */
  bootedAtMs: number;
  /** The last lines that a container printed since it was started last. */
  lastLines: (container: ContainerRecord) => Promise<string[]>;
  /** Called when the status is another one. */
  onChange: () => void;
}

/** On top of the grace period: SIGKILL, and the engine's own work. */
const stopMarginMs = 20_000;
const changeTimeoutMs = 60_000;

/**
 * The containers of one app. Those of one release are the app, those of others wait for an upgrade to be proven.
 * Operations on it come one at a time, its owner sees to that; watching goes on all the time.
 */
export class ContainerApp {
  readonly id: string;
  readonly #options: ContainerAppOptions;
  #app: RunnableApp | undefined;
  #release: string | undefined;
  /** Whether svc means it to run. */
  #isWanted = false;
  /** The containers of the release, as last seen; oldest first. */
  #members: readonly ContainerRecord[] = [];
  readonly #lastLines = new Map<string, readonly string[]>();
  readonly #exitCodes = new Map<string, number>();
  #status: RuntimeStatus = stoppedStatus;
  /** Shown instead of what the engine says, while an operation goes on. */
  #underway: RuntimeStatus | undefined;
  #probe: PortProbe | undefined;
  #engineError: SvcError | undefined;
  /** Ids of what ran when the engine went away. */
  #ranWhenLost: readonly string[] = [];
  #observations = 0;
  /** Why it was ended by svc. */
  #breach: string | undefined;
  #onDeath: ((containerId: string) => void) | undefined;
  readonly #changes: StatusChanges;

  constructor(id: string, options: ContainerAppOptions) {
    this.id = id;
    this.#options = options;
    this.#changes = new StatusChanges(id);
  }

  get status(): RuntimeStatus {
    return this.#status;
  }

  /** The containers that are the app, as last seen. */
  get members(): readonly ContainerRecord[] {
    return this.#members;
  }

  /**
   * Has the containers of a release started, those of others stopped; resolves when they have run for a while.
   * @param launch starts them, and answers the ids of those that it has made
   * @throws SvcError `start_failed` with exit code and last lines; `unavailable`
   */
  async start(app: RunnableApp, release: string, launch: () => Promise<readonly string[]>): Promise<void> {
    this.#app = app;
    this.#isWanted = true;
    this.#exitCodes.clear();
    this.#breach = undefined;
    await this.#during("STARTING", async () => {
      try {
        for (const { id, state, labels } of await this.containers()) {
          if (labels[releaseLabel] !== release && isUpState(state)) await this.#stopContainer(id, app);
        }
        this.#release = release;
        await this.#settle(app, launch);
      } catch (error) {
        if (error instanceof SvcError && error.reason === "start_failed") this.#isWanted = false;
        throw error;
      }
    });
  }

  /** Resolves when what was launched has lived long enough. */
  async #settle(app: RunnableApp, launch: () => Promise<readonly string[]>): Promise<void> {
    const died = Promise.withResolvers<undefined>();
    this.#onDeath = (id) => {
      // A service that has done its work may end at once.
      if (this.#exitCodes.get(id) !== 0) died.resolve(undefined);
    };
    let members: readonly ContainerRecord[];
    try {
      const made = await launch().catch((error: unknown) => {
        throw this.#refusal(error);
      });
      await Promise.race([died.promise, sleep(this.#options.settleMs)]);
      members = await this.#refresh(made);
    } finally {
      this.#onDeath = undefined;
    }
    const failed =
      members.find(({ id, state, restarts, exitCode, error }) => {
        const code = this.#exitCodes.get(id) ?? (state === "running" ? 0 : exitCode);
        return code !== 0 || restarts > 0 || error !== "";
      }) ?? (members.some(({ state }) => isUpState(state)) ? undefined : members[0]);
    if (failed === undefined && members.length > 0) {
      for (const container of members) await this.#verify(container);
      if (this.#breach !== undefined) throw this.#startFailed(this.#breach);
      return;
    }
    // Their restart policy would go on for as long as it is left to.
    for (const { id, state } of members.toReversed()) {
      if (isUpState(state)) await this.#stopContainer(id, app, 0);
    }
    if (failed === undefined) throw this.#startFailed("its containers were removed");
    const exitCode = this.#exitCodes.get(failed.id) ?? failed.exitCode;
    const lastLines = await this.#options.lastLines(failed).catch(() => []);
    throw this.#startFailed(endOf({ ...failed, exitCode }, subjectOf(failed)), exitCode, lastLines);
  }

  async startById(containerId: string): Promise<void> {
    await this.#options.engine.operate(
      `start a container of app "${this.id}"`,
      (docker) => docker.getContainer(containerId).start().catch(unlessStatus(304)),
      { timeoutMs: changeTimeoutMs },
    );
  }

  /**
   * Ends what runs of the app; resolves when nothing does.
   * @param depthOf how far a service is from those that depend on none: the deepest end first, equal ones together
   */
  async stop(app: RunnableApp, depthOf: (service: string) => number = () => 0): Promise<void> {
    const wasWanted = this.#isWanted;
    this.#app = app;
    this.#isWanted = false;
    await this.#during("STOPPING", async () => {
      try {
        const up = (await this.containers()).filter(({ state }) => isUpState(state));
        const byDepth = Map.groupBy(up, ({ composeService = "" }) => depthOf(composeService));
        for (const depth of [...byDepth.keys()].sort((a, b) => b - a)) {
          await Promise.all((byDepth.get(depth) ?? []).map(({ id }) => this.#stopContainer(id, app)));
        }
      } catch (error) {
        this.#isWanted = wasWanted;
        throw error;
      }
    });
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

  /** Finds out what runs of the app, and watches it from now on. */
  async adopt(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
    this.#app = app;
    this.#isWanted = true;
    try {
      return await this.#findOut();
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "unavailable") throw error;
      // It may well run: the next connection to the engine tells.
      this.engineLost(error as SvcError);
      return "running";
    }
  }

  async #findOut(): Promise<"running" | "ended" | "lost"> {
    const containers = await this.containers();
    const lastStarted = containers.toSorted((a, b) => (b.startedAtMs ?? 0) - (a.startedAtMs ?? 0))[0];
    const found = containers.find(({ state }) => isUpState(state)) ?? lastStarted;
    this.#release = found?.labels[releaseLabel];
    await this.observe();
    if (found !== undefined && isUpState(found.state)) return "running";
    return (found?.startedAtMs ?? Infinity) < this.#options.bootedAtMs ? "lost" : "ended";
  }

  /** The engine cannot be asked any more. */
  engineLost(error: SvcError): void {
    if (this.#engineError === undefined) {
      this.#ranWhenLost = this.#members.filter(({ state }) => isUpState(state)).map(({ id }) => id);
    }
    this.#engineError = error;
    this.#publish();
  }

  /**
   * The engine is back. What ran when it went away and does not now was ended with it, and starts again; the engine's own
   * restart policy does that too, for some.
   */
  async engineBack(): Promise<void> {
    const ran = new Set(this.#ranWhenLost);
    this.#ranWhenLost = [];
    this.#engineError = undefined;
    if (this.#release === undefined && this.#isWanted) {
      const isLost = (await this.#findOut()) === "lost";
      for (const { id } of isLost ? this.#members : []) ran.add(id);
    } else await this.observe();
    for (const { id, state } of this.#members) {
      if (!this.#isWanted || this.#underway !== undefined) return;
      if (ran.has(id) && state === "exited") await this.startById(id);
    }
  }

  /** A process of this container has ended; the engine may already have started the next one. */
  died(containerId: string, exitCode: number): void {
    if (!this.#isWanted) return;
    this.#exitCodes.set(containerId, exitCode);
    this.#onDeath?.(containerId);
  }

  /** Takes up what is known of the containers now. */
  async observe(): Promise<void> {
    const known = this.#options.state.containersNow();
    if (known === undefined || this.#release === undefined) this.#publish();
    else await this.#observe(this.#ofRelease(known.containers));
  }

  async #observe(members: readonly ContainerRecord[]): Promise<void> {
    const observation = ++this.#observations;
    const before = new Map(this.#members.map((container) => [container.id, container]));
    for (const container of members) {
      const hasEnded =
        container.state !== "running" && container.finishedAtMs !== undefined && this.#isWanted;
      if (!hasEnded || before.get(container.id)?.finishedAtMs === container.finishedAtMs) continue;
      const lines = await this.#options.lastLines(container).catch(() => []);
      // Something has happened meanwhile, and was observed.
      if (observation !== this.#observations) return;
      this.#lastLines.set(container.id, lines);
    }
    for (const container of members) {
      const isKnown = before.get(container.id)?.startedAtMs === container.startedAtMs;
      if (container.state === "running" && !isKnown) await this.#verify(container);
      if (observation !== this.#observations) return;
    }
    this.#members = members;
    for (const id of this.#lastLines.keys()) {
      if (!members.some((container) => container.id === id)) this.#lastLines.delete(id);
    }
    this.#watchPort();
    this.#publish();
  }

  /** Ends a container that sees what its owner has put in the place of a checked directory. */
  async #verify(container: ContainerRecord): Promise<void> {
    const app = this.#app;
    if (app === undefined || app.ownerUid === 0) return;
    const path = await strayMount(app, container);
    if (path === undefined) return;
    this.#breach = `what it mounts at ${path} is not the directory that its configuration names: it was ended`;
    await this.#stopContainer(container.id, app, 0);
  }

  #watchPort(): void {
    const { state, startedAtMs } = statusOf(this.#members, this.#statusContext());
    const isRunning = state === "RUNNING";
    if (isRunning && this.#probe?.startedAtMs === startedAtMs) return;
    this.#probe?.[Symbol.dispose]();
    const spec = isRunning && this.#app ? portHealthSpec(this.#app) : undefined;
    this.#probe = spec && new PortProbe(spec, startedAtMs, () => this.#publish());
  }

  /**
   * Resolves when it runs and is healthy, or has no health check.
   * @throws SvcError `start_failed`, `deadline_exceeded`, `canceled`
   */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    await this.#changes.until(() => this.#isHealthy(), timeoutMs, signal);
  }

  #isHealthy(): boolean {
    const { state, reason, health, restarts, lastLines, exitCode } = this.#status;
    const isUnhealthy = health === "unhealthy";
    if (state === "UNKNOWN") return false;
    if (state === "RUNNING" && restarts === 0 && !isUnhealthy) return health !== "starting";
    const output = this.#members.find((container) => container.health === "unhealthy")?.healthOutput.trim();
    const check = `its health check fails${output ? `: ${output}` : ""}`;
    throw this.#startFailed(reason || (isUnhealthy ? check : "it ended"), exitCode, lastLines);
  }

  /** Removes those containers of the app that `isChosen`. */
  async removeContainers(
    isChosen: (container: { release: string; isUp: boolean }) => boolean,
  ): Promise<void> {
    for (const { id, labels, state } of (await this.containers()).toReversed()) {
      if (!isChosen({ release: labels[releaseLabel] ?? "", isUp: isUpState(state) })) continue;
      await this.#options.engine.operate(
        `remove a container of app "${this.id}"`,
        // With the volumes that have no name: nobody could find them again.
        (docker) => docker.getContainer(id).remove({ force: true, v: true }).catch(unlessStatus(404)),
        { timeoutMs: changeTimeoutMs },
      );
    }
  }

  /** The containers whose logs are the app's: those that ran last. @throws SvcError `unavailable` */
  async logSources(): Promise<readonly ContainerRecord[]> {
    if (this.#members.length > 0) return this.#members;
    const containers = await this.containers();
    const last = containers.toSorted((a, b) => (b.startedAtMs ?? 0) - (a.startedAtMs ?? 0))[0];
    const release = last?.labels[releaseLabel];
    return containers.filter(({ labels }) => labels[releaseLabel] === release);
  }

  /** All containers of the app, oldest first. @throws SvcError `unavailable` */
  async containers(): Promise<ContainerRecord[]> {
    const { containers } = await this.#options.state.containers();
    return containers
      .filter((container) => this.isOwn(container))
      .toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  }

  isOwn({ labels }: ContainerRecord): boolean {
    return isMadeFor(this.id, this.#options.storeId, labels);
  }

  /** Lets go of the app, which goes on. */
  detach(): void {
    this.#probe?.[Symbol.dispose]();
    this.#probe = undefined;
    this.#release = undefined;
    this.#observations++;
  }

  #ofRelease(containers: readonly ContainerRecord[]): ContainerRecord[] {
    return containers
      .filter((container) => this.isOwn(container) && container.labels[releaseLabel] === this.#release)
      .toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  }

  /** The containers of the release as they are now, those that were just made included. */
  async #refresh(made: readonly string[]): Promise<ContainerRecord[]> {
    const { state } = this.#options;
    const listed = (await this.containers()).map(({ id }) => id);
    const all: ContainerRecord[] = [];
    for (const id of new Set([...listed, ...this.#members.map((member) => member.id), ...made])) {
      const container = await state.refreshContainer(id);
      if (container !== undefined) all.push(container);
    }
    return this.#ofRelease(all);
  }

  async #stopContainer(id: string, app: RunnableApp, graceMs = app.manifest.stop.graceMs): Promise<void> {
    await this.#options.engine.operate(
      `stop a container of app "${this.id}"`,
      (docker) =>
        docker
          .getContainer(id)
          .stop({ t: Math.ceil(graceMs / 1000) })
          .catch(unlessStatus(304, 404)),
      { timeoutMs: graceMs + stopMarginMs },
    );
  }

  /** The engine would not: its words are why the app did not start. */
  #refusal(error: unknown): unknown {
    if (!(error instanceof SvcError) || error.reason === "start_failed") return error;
    if (["unavailable", "resource_exhausted"].includes(error.code)) return error;
    return this.#startFailed(error.message);
  }

  #startFailed(why: string, exitCode?: number, lastLines: readonly string[] = []): SvcError {
    return failedPrecondition("start_failed", `app "${this.id}" did not start: ${why}`, {
      payload: { ...(exitCode !== undefined && { exitCode }), signal: "", lastLines: [...lastLines] },
    });
  }

  #publish(): void {
    const status = this.#currentStatus();
    if (isDeepStrictEqual(status, this.#status)) return;
    this.#status = status;
    this.#changes.announce();
    this.#options.onChange();
  }

  #currentStatus(): RuntimeStatus {
    if (this.#underway !== undefined) return this.#underway;
    if (this.#engineError !== undefined && this.#isWanted) {
      return { ...stoppedStatus, state: "UNKNOWN", reason: this.#engineError.message };
    }
    const status = statusOf(this.#members, this.#statusContext());
    return this.#breach === undefined ? status : { ...status, state: "CRASHED", reason: this.#breach };
  }

  #statusContext(): Parameters<typeof statusOf>[1] {
    return {
      isWanted: this.#isWanted,
      exitCodes: this.#exitCodes,
      probed: this.#probe?.health,
      lastLines: this.#lastLines,
    };
  }
}

function subjectOf({ composeService }: ContainerRecord): string {
  return composeService === undefined ? "it" : `service "${composeService}"`;
}

/** For answers that say that it is as wanted already. */
function unlessStatus(...codes: number[]): (error: unknown) => void {
  return (error) => {
    if (!codes.includes((error as { statusCode?: number }).statusCode ?? 0)) throw error;
  };
}
