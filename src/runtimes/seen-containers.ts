/** What was seen of the containers that are an app: which there are, how they ended, what they mount. */
import { isUpState, type ContainerRecord } from "../docker/container-record.ts";
import type { AppContainers } from "./app-containers.ts";
import { strayMount } from "./bind-verification.ts";
import type { ContainerRestarts } from "./container-restarts.ts";
import { statusOf } from "./container-status.ts";
import type { PortProbe } from "./port-probe.ts";
import type { RunnableApp, RuntimeStatus } from "./runtime.ts";

export interface SeenContainersOptions {
  containers: AppContainers;
  /** The last lines that a container printed since it was started last. */
  lastLines: (container: ContainerRecord) => Promise<string[]>;
}

export class SeenContainers {
  readonly #options: SeenContainersOptions;
  #members: readonly ContainerRecord[] = [];
  readonly #lastLines = new Map<string, readonly string[]>();
  readonly #exitCodes = new Map<string, number>();
  /** Ids of containers that somebody has ended through the engine. */
  readonly #killed = new Set<string>();
  #breach: string | undefined;
  #observations = 0;

  constructor(options: SeenContainersOptions) {
    this.#options = options;
  }

  /** As last seen, oldest first. */
  get members(): readonly ContainerRecord[] {
    return this.#members;
  }

  /** Why svc ended one of them; `undefined`: it did not. */
  get breach(): string | undefined {
    return this.#breach;
  }

  /** How the last run ended counts no more. */
  beginRun(): void {
    this.#exitCodes.clear();
    this.#killed.clear();
    this.#breach = undefined;
  }

  /** A process of this container runs from now on. */
  started(containerId: string): void {
    this.#killed.delete(containerId);
  }

  /** Somebody has the engine end this container: an operator, svc, or the engine itself that shuts down. */
  killed(containerId: string): void {
    this.#killed.add(containerId);
  }

  wasKilled(containerId: string): boolean {
    return this.#killed.has(containerId);
  }

  /** A process of this container has ended; the engine may already have started the next one. */
  died(containerId: string, exitCode: number): void {
    this.#exitCodes.set(containerId, exitCode);
  }

  /**
   * Takes up what there is now, once it is looked into.
   * @param app whose mounts are verified; `undefined`: none
   * @param keepsEnds whether what ended is worth its last lines
   * @returns false when something else was taken up meanwhile
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

  /** What is being looked into is not taken up any more. */
  abandon(): void {
    this.#observations++;
  }

  /** Ends a container that sees what its owner has put in the place of a checked directory. */
  async verify(container: ContainerRecord, app: RunnableApp | undefined): Promise<void> {
    if (app === undefined || app.ownerUid === 0) return;
    const path = await strayMount(app, container);
    if (path === undefined) return;
    this.#breach = `what it mounts at ${path} is not the directory that its configuration names: it was ended`;
    await this.#options.containers.stop(container.id, 0);
  }

  /** Of containers that were started a moment ago, the one because of which the app has not started. */
  failedOf(members: readonly ContainerRecord[]): ContainerRecord | undefined {
    const failed =
      members.find(({ id, state, exitCode, error }) => {
        const code = this.#exitCodes.get(id) ?? (state === "running" ? 0 : exitCode);
        return code !== 0 || error !== "" || state === "created";
      }) ?? (members.some(({ state }) => isUpState(state)) ? undefined : members[0]);
    return failed && { ...failed, exitCode: this.#exitCodes.get(failed.id) ?? failed.exitCode };
  }

  /** Empty when the engine does not tell. */
  async lastLines(container: ContainerRecord): Promise<string[]> {
    return this.#options.lastLines(container).catch(() => []);
  }

  /** @param probe of svc's own; absent where the engine checks */
  status(
    isWanted: boolean,
    probe: Pick<PortProbe, "health" | "reason"> | undefined,
    restarts: ContainerRestarts,
  ): RuntimeStatus {
    const status = statusOf(this.#members, {
      ...{ isWanted, probed: probe?.health, restarts: restarts.count },
      endOf: (container) => restarts.endOf(container),
      exitCodes: this.#exitCodes,
      lastLines: this.#lastLines,
    });
    if (this.#breach !== undefined) return { ...status, state: "CRASHED", reason: this.#breach };
    const healthReason = status.state === "RUNNING" ? this.#healthReason(probe) : undefined;
    return healthReason === undefined ? status : { ...status, healthReason };
  }

  #healthReason(probe: Pick<PortProbe, "reason"> | undefined): string | undefined {
    const output = this.#members.find(({ health }) => health === "unhealthy")?.healthOutput.trim();
    return output === undefined || output === "" ? probe?.reason : output;
  }
}
