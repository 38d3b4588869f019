/** Observations of an app's containers: which exist, how they ended, what they mount. */
import { isUpState, type ContainerRecord } from "../../engine/container-record.ts";
import type { AppContainers } from "./app-containers.ts";
import { changedMount } from "./bind-verification.ts";
import type { ContainerRestarts } from "./container-restarts.ts";
import { statusOf } from "./container-status.ts";
import type { PortProbe } from "../port-probe.ts";
import type { RuntimeStatus } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface ObservedContainersOptions {
  containers: AppContainers;
  /** A container's last lines of output since its last start. */
  lastLines: (container: ContainerRecord) => Promise<string[]>;
}

export class ObservedContainers {
  readonly #options: ObservedContainersOptions;
  #members: readonly ContainerRecord[] = [];
  readonly #lastLines = new Map<string, readonly string[]>();
  readonly #exitCodes = new Map<string, number>();
  /** IDs of containers from before the current run that have not started in it. */
  readonly #earlier = new Set<string>();
  /** IDs of containers that were ended through the engine. */
  readonly #killed = new Set<string>();
  #exceededLimit: string | undefined;
  #observations = 0;

  constructor(options: ObservedContainersOptions) {
    this.#options = options;
  }

  /** As last observed, oldest first. */
  get members(): readonly ContainerRecord[] {
    return this.#members;
  }

  /** Why svc ended one of them; `undefined` if it did not. */
  get exceededLimit(): string | undefined {
    return this.#exceededLimit;
  }

  /**
   * Forgets how the last run ended.
   * @param existing IDs of the app's containers: events of their earlier exits may still arrive
   */
  beginRun(existing: readonly string[]): void {
    this.#earlier.clear();
    for (const id of existing) this.#earlier.add(id);
    this.#exitCodes.clear();
    this.#killed.clear();
    this.#exceededLimit = undefined;
  }

  /** A process of this container started. */
  noteStart(containerId: string): void {
    this.#earlier.delete(containerId);
    this.#killed.delete(containerId);
  }

  /** The container is being ended through the engine: by an operator, by svc, or by the engine's shutdown. */
  noteKill(containerId: string): void {
    this.#killed.add(containerId);
  }

  wasKilled(containerId: string): boolean {
    return this.#killed.has(containerId);
  }

  /**
   * A process of this container ended; the engine may already have started the next one.
   * @returns false if the process is from before the current run
   */
  noteDeath(containerId: string, exitCode: number): boolean {
    if (this.#earlier.has(containerId)) return false;
    this.#exitCodes.set(containerId, exitCode);
    return true;
  }

  /**
   * Applies the current containers, once their mounts are verified.
   * @param app whose mounts are verified; `undefined`: no verification
   * @param keepsEnds whether to read the last lines of ended containers
   * @returns false when newer containers were applied meanwhile
   */
  async take(
    members: readonly ContainerRecord[],
    app: RunnableApp | undefined,
    keepsEnds: boolean,
  ): Promise<boolean> {
    const observation = ++this.#observations;
    const before = new Map(this.#members.map((container) => [container.id, container]));
    for (const container of members) {
      const hasEnded = container.state !== "running" && container.finishedAtMs !== undefined && keepsEnds;
      if (!hasEnded || before.get(container.id)?.finishedAtMs === container.finishedAtMs) continue;
      const lines = await this.lastLines(container);
      if (observation !== this.#observations) return false;
      this.#lastLines.set(container.id, lines);
    }
    for (const container of members) {
      const isKnown = before.get(container.id)?.startedAtMs === container.startedAtMs;
      if (container.state === "running" && !isKnown) await this.verify(container, app);
      if (observation !== this.#observations) return false;
    }
    this.#members = members;
    for (const id of this.#lastLines.keys()) {
      if (!members.some((container) => container.id === id)) this.#lastLines.delete(id);
    }
    return true;
  }

  /** Discards observations in progress. */
  abandon(): void {
    this.#observations++;
  }

  /** Ends a container that mounts what its owner put in place of a checked directory. */
  async verify(container: ContainerRecord, app: RunnableApp | undefined): Promise<void> {
    if (app === undefined || app.ownerUid === 0) return;
    const path = await changedMount(app, container);
    if (path === undefined) return;
    this.#exceededLimit = `svc stopped the app, because its mount at ${path} is not the configured directory`;
    await this.#options.containers.stop(container.id, 0);
  }

  /** The newly started container that prevents the app's start. */
  failedOf(members: readonly ContainerRecord[]): ContainerRecord | undefined {
    const failed =
      members.find(({ id, state, exitCode, error }) => {
        const code = this.#exitCodes.get(id) ?? (state === "running" ? 0 : exitCode);
        return code !== 0 || error !== "" || state === "created";
      }) ?? (members.some(({ state }) => isUpState(state)) ? undefined : members[0]);
    return failed && { ...failed, exitCode: this.#exitCodes.get(failed.id) ?? failed.exitCode };
  }

  /** Empty if the engine does not return them. */
  async lastLines(container: ContainerRecord): Promise<string[]> {
    return this.#options.lastLines(container).catch(() => []);
  }

  /** @param probe svc's own; absent if the engine checks the health */
  status(
    shouldRun: boolean,
    probe: Pick<PortProbe, "health" | "reason"> | undefined,
    restarts: ContainerRestarts,
  ): RuntimeStatus {
    const observed = statusOf(this.#members, {
      ...{ shouldRun, probed: probe?.health, restarts: restarts.count },
      endOf: (container) => restarts.endOf(container),
      exitCodes: this.#exitCodes,
      lastLines: this.#lastLines,
    });
    const hasTerminal = this.#members.some((container) => container.hasTerminal) || undefined;
    const status: RuntimeStatus = { ...observed, ...(hasTerminal && { hasTerminal }) };
    if (this.#exceededLimit !== undefined)
      return { ...status, state: "CRASHED", reason: this.#exceededLimit };
    const healthReason = status.state === "RUNNING" ? this.#healthReason(probe) : undefined;
    return healthReason === undefined ? status : { ...status, healthReason };
  }

  #healthReason(probe: Pick<PortProbe, "reason"> | undefined): string | undefined {
    const output = this.#members.find(({ health }) => health === "unhealthy")?.healthOutput.trim();
    return output === undefined || output === "" ? probe?.reason : output;
  }
}
