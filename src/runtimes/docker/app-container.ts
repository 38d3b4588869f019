import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { appLabel, storeLabel } from "../../docker/attribution.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import type { EngineState } from "../../docker/engine-state.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import { failedPrecondition, SvcError } from "../../errors.ts";
import type { RunnableApp, RuntimeStatus } from "../runtime.ts";
import { releaseLabel, type ContainerConfig } from "./container-config.ts";
import { endOf, isUpState, statusOf, stoppedStatus } from "./container-status.ts";
import { PortProbe, portHealthSpec } from "./port-probe.ts";

export interface AppContainerOptions {
  engine: DockerEngine;
  state: EngineState;
  storeId: string;
  /** A container that ends this soon after its start has failed to start. */
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
 * The containers of one app, of which one at most runs. Operations on it come one at a time, its owner sees to that;
 * watching goes on all the time.
 */
export class AppContainer {
  readonly id: string;
  readonly #options: AppContainerOptions;
  #app: RunnableApp | undefined;
  /** Whether svc means it to run. */
  #isWanted = false;
  /** The one that is the app, as last seen. */
  #container: ContainerRecord | undefined;
  #containerId: string | undefined;
  #lastLines: readonly string[] = [];
  #status: RuntimeStatus = stoppedStatus;
  /** Shown instead of what the engine says, while an operation goes on. */
  #underway: RuntimeStatus | undefined;
  #probe: PortProbe | undefined;
  #engineError: SvcError | undefined;
  #ranWhenLost = false;
  #observations = 0;
  /** Of the last process that ended by itself. */
  #exitCode: number | undefined;
  #onDeath: ((exitCode: number) => void) | undefined;
  readonly #waiting = new Set<() => void>();

  constructor(id: string, options: AppContainerOptions) {
    this.id = id;
    this.#options = options;
  }

  get status(): RuntimeStatus {
    return this.#status;
  }

  /** The one that is the app, as last seen. */
  get container(): ContainerRecord | undefined {
    return this.#container;
  }

  /**
   * Starts the container of this configuration, which is made when it is missing; resolves when it has run for a while.
   * @throws SvcError `start_failed` with exit code and last lines; `unavailable`
   */
  async start(app: RunnableApp, config: ContainerConfig): Promise<void> {
    this.#app = app;
    this.#isWanted = true;
    this.#exitCode = undefined;
    await this.#during("STARTING", async () => {
      try {
        await this.#settle(await this.#startContainer(app, config));
      } catch (error) {
        if (error instanceof SvcError && error.reason === "start_failed") this.#isWanted = false;
        throw error;
      }
    });
  }

  async #startContainer(app: RunnableApp, config: ContainerConfig): Promise<string> {
    const containers = await this.containers();
    for (const { id, state, labels } of containers) {
      if (labels[releaseLabel] !== config.release && isUpState(state)) {
        await this.#stopContainer(id, app.manifest.stop.graceMs);
      }
    }
    const existing = containers.find(({ labels }) => labels[releaseLabel] === config.release);
    try {
      const id = existing?.id ?? (await this.#create(config));
      this.#containerId = id;
      await this.#startById(id);
      return id;
    } catch (error) {
      throw this.#refusal(error);
    }
  }

  async #create(config: ContainerConfig): Promise<string> {
    const { engine, state } = this.#options;
    try {
      const { id } = await engine.operate(
        `make the container of app "${this.id}"`,
        (docker) => docker.createContainer(config.options),
        { timeoutMs: changeTimeoutMs },
      );
      return id;
    } catch (error) {
      // An earlier start may have been cut short between making it and hearing of it.
      if (!(error instanceof SvcError) || error.code !== "already_exists") throw error;
      const found = await state.refreshContainer(config.name);
      if (found === undefined || !this.#isOwn(found)) throw error;
      return found.id;
    }
  }

  async #startById(containerId: string): Promise<void> {
    await this.#options.engine.operate(
      `start the container of app "${this.id}"`,
      (docker) => docker.getContainer(containerId).start().catch(unlessStatus(304)),
      { timeoutMs: changeTimeoutMs },
    );
  }

  /** Resolves when the container has lived long enough. */
  async #settle(id: string): Promise<void> {
    const { state, settleMs } = this.#options;
    const died = Promise.withResolvers<number>();
    this.#onDeath = died.resolve;
    const exitCode = await Promise.race([died.promise, sleep(settleMs)]);
    this.#onDeath = undefined;
    const container = await state.refreshContainer(id);
    if (exitCode === undefined && container?.state === "running" && container.restarts === 0) return;
    if (container === undefined) throw this.#startFailed("its container was removed", undefined, []);
    // Its restart policy would go on for as long as it is left to.
    await this.#stopContainer(id, 0);
    const first = { ...container, ...(exitCode !== undefined && { exitCode }) };
    const lastLines = await this.#options.lastLines(first).catch(() => []);
    throw this.#startFailed(endOf(first), first.exitCode, lastLines);
  }

  /** Ends what runs of the app; resolves when nothing does. */
  async stop(app: RunnableApp): Promise<void> {
    const wasWanted = this.#isWanted;
    this.#app = app;
    this.#isWanted = false;
    await this.#during("STOPPING", async () => {
      try {
        for (const { id, state } of await this.containers()) {
          if (isUpState(state)) await this.#stopContainer(id, app.manifest.stop.graceMs);
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
      const id = this.#containerId;
      const fresh = id && (await this.#options.state.refreshContainer(id).catch(() => undefined));
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
    const found =
      containers.find(({ state }) => isUpState(state)) ?? containers.find(({ state }) => state === "exited");
    this.#containerId = found?.id;
    await this.observe();
    if (found !== undefined && isUpState(found.state)) return "running";
    return (found?.startedAtMs ?? Infinity) < this.#options.bootedAtMs ? "lost" : "ended";
  }

  /** The engine cannot be asked any more. */
  engineLost(error: SvcError): void {
    if (this.#engineError === undefined) this.#ranWhenLost = isUpState(this.#container?.state ?? "");
    this.#engineError = error;
    this.#publish();
  }

  /**
   * The engine is back. What ran when it went away and does not now was ended with it, and starts again; the engine's own
   * restart policy does that too, for some.
   */
  async engineBack(): Promise<void> {
    let shouldRun = this.#ranWhenLost;
    this.#ranWhenLost = false;
    this.#engineError = undefined;
    if (this.#containerId === undefined && this.#isWanted) shouldRun = (await this.#findOut()) === "lost";
    else await this.observe();
    const isFree = this.#isWanted && this.#underway === undefined;
    if (!shouldRun || !isFree || this.#container?.state !== "exited") return;
    await this.#startById(this.#container.id);
  }

  /** A process of this container has ended; the engine may already have started the next one. */
  died(containerId: string, exitCode: number): void {
    if (containerId !== this.#containerId || !this.#isWanted) return;
    this.#exitCode = exitCode;
    this.#onDeath?.(exitCode);
  }

  concernedBy(containerIds: ReadonlySet<string>): boolean {
    return this.#containerId !== undefined && containerIds.has(this.#containerId);
  }

  /** Takes up what is known of the container now. */
  async observe(): Promise<void> {
    const id = this.#containerId;
    const { state } = this.#options;
    if (id === undefined || !state.isAvailable) this.#publish();
    else await this.#observe(state.containerNow(id));
  }

  async #observe(container: ContainerRecord | undefined): Promise<void> {
    const observation = ++this.#observations;
    const hasEnded = container !== undefined && container.state !== "running" && this.#isWanted;
    const isSame = container?.finishedAtMs === this.#container?.finishedAtMs;
    const lines = hasEnded && !isSame ? await this.#options.lastLines(container).catch(() => []) : undefined;
    // Something has happened meanwhile, and was observed.
    if (observation !== this.#observations) return;
    if (lines !== undefined) this.#lastLines = lines;
    this.#container = container;
    this.#watchPort();
    this.#publish();
  }

  #watchPort(): void {
    const isRunning = this.#container?.state === "running";
    const startedAtMs = this.#container?.startedAtMs;
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
    const deadline = AbortSignal.timeout(timeoutMs);
    const either = signal ? AbortSignal.any([signal, deadline]) : deadline;
    while (!this.#isHealthy()) {
      if (either.aborted) throw waitEnded(this.id, timeoutMs, signal);
      const change = Promise.withResolvers<undefined>();
      const wake = (): void => change.resolve(undefined);
      this.#waiting.add(wake);
      either.addEventListener("abort", wake, { once: true });
      await change.promise;
      this.#waiting.delete(wake);
      either.removeEventListener("abort", wake);
    }
  }

  #isHealthy(): boolean {
    const { state, reason, health, restarts, lastLines, exitCode } = this.#status;
    const isUnhealthy = health === "unhealthy";
    if (state === "UNKNOWN") return false;
    if (state === "RUNNING" && restarts === 0 && !isUnhealthy) return health !== "starting";
    const output = this.#container?.healthOutput.trim() ?? "";
    const why = isUnhealthy ? `its health check fails${output && `: ${output}`}` : reason || "it ended";
    throw this.#startFailed(why, exitCode, lastLines);
  }

  /** Removes those containers of the app that `isChosen`. */
  async removeContainers(
    isChosen: (container: { release: string; isUp: boolean }) => boolean,
  ): Promise<void> {
    for (const { id, labels, state } of await this.containers()) {
      if (!isChosen({ release: labels[releaseLabel] ?? "", isUp: isUpState(state) })) continue;
      await this.#options.engine.operate(
        `remove a container of app "${this.id}"`,
        // With the volumes that have no name: nobody could find them again.
        (docker) => docker.getContainer(id).remove({ force: true, v: true }).catch(unlessStatus(404)),
        { timeoutMs: changeTimeoutMs },
      );
    }
  }

  /** The container whose log is the app's: the one that ran last. @throws SvcError `unavailable` */
  async logSource(): Promise<ContainerRecord | undefined> {
    if (this.#container !== undefined) return this.#container;
    const containers = await this.containers();
    return containers.toSorted((a, b) => (b.startedAtMs ?? 0) - (a.startedAtMs ?? 0))[0];
  }

  /** All containers of the app, newest first. @throws SvcError `unavailable` */
  async containers(): Promise<ContainerRecord[]> {
    const { containers } = await this.#options.state.containers();
    return containers
      .filter((container) => this.#isOwn(container))
      .toSorted((a, b) => b.createdAtMs - a.createdAtMs);
  }

  #isOwn({ labels }: ContainerRecord): boolean {
    return labels[appLabel] === this.id && labels[storeLabel] === this.#options.storeId;
  }

  /** Lets go of the app, which goes on. */
  detach(): void {
    this.#probe?.[Symbol.dispose]();
    this.#probe = undefined;
    this.#containerId = undefined;
  }

  async #stopContainer(id: string, graceMs: number): Promise<void> {
    await this.#options.engine.operate(
      `stop the container of app "${this.id}"`,
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
    if (!(error instanceof SvcError)) return error;
    if (["unavailable", "resource_exhausted"].includes(error.code)) return error;
    return this.#startFailed(error.message, undefined, []);
  }

  #startFailed(why: string, exitCode: number | undefined, lastLines: readonly string[]): SvcError {
    return failedPrecondition("start_failed", `app "${this.id}" did not start: ${why}`, {
      payload: { ...(exitCode !== undefined && { exitCode }), signal: "", lastLines: [...lastLines] },
    });
  }

  #publish(): void {
    const status = this.#currentStatus();
    if (isDeepStrictEqual(status, this.#status)) return;
    this.#status = status;
    for (const wake of this.#waiting) wake();
    this.#options.onChange();
  }

  #currentStatus(): RuntimeStatus {
    if (this.#underway !== undefined) return this.#underway;
    if (this.#engineError !== undefined && this.#isWanted) {
      return { ...stoppedStatus, state: "UNKNOWN", reason: this.#engineError.message };
    }
    return statusOf(this.#container, {
      isWanted: this.#isWanted,
      exitCode: this.#exitCode,
      probed: this.#probe?.health,
      lastLines: this.#lastLines,
    });
  }
}

/** For answers that say that it is as wanted already. */
function unlessStatus(...codes: number[]): (error: unknown) => void {
  return (error) => {
    if (!codes.includes((error as { statusCode?: number }).statusCode ?? 0)) throw error;
  };
}

function waitEnded(id: string, timeoutMs: number, signal: AbortSignal | undefined): SvcError {
  return signal?.aborted === true
    ? new SvcError("canceled", "canceled", `waiting for app "${id}" was canceled`)
    : new SvcError("deadline_exceeded", "deadline_exceeded", `app "${id}" took longer than ${timeoutMs} ms`);
}
