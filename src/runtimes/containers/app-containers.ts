/** Finds, starts, stops and removes the containers of one app. */
import type { Container, ContainerInfo } from "dockerode";
import { isUpState, namedObject, type ContainerRecord } from "../../engine/container-record.ts";
import type { EngineState } from "../../engine/engine-state.ts";
import type { DockerEngine, OperationOptions } from "../../engine/engine.ts";
import type { EngineEvents } from "../../engine/events.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { isIgnoredSignal } from "../../sys/ignored-signal.ts";
import { blockedName, isRenamed, releaseOf } from "./blocked-containers.ts";

export interface AppContainersOptions {
  engine: DockerEngine;
  events: EngineEvents;
  state: EngineState;
  ownership: EngineOwnership;
}

/** Added to the grace period for SIGKILL and the engine's own work. */
const stopMarginMs = 20_000;
const listTimeoutMs = 10_000;
const changeTimeoutMs = 60_000;

/** Methods that call the engine throw SvcError `unavailable` while it is unreachable or hangs. */
export class AppContainers {
  readonly #appId: string;
  readonly #options: AppContainersOptions;

  constructor(appId: string, options: AppContainersOptions) {
    this.#appId = appId;
    this.#options = options;
  }

  isOwn(container: Pick<ContainerRecord, "name" | "labels">): boolean {
    return this.#options.ownership.isOwn("container", this.#appId, namedObject(container));
  }

  /** Oldest first, including stopped ones. */
  async all(): Promise<ContainerRecord[]> {
    return this.#own((await this.#options.state.containers()).containers);
  }

  /** Oldest first, from memory; empty while the state is unknown. */
  known(): ContainerRecord[] {
    return this.#own(this.#options.state.containersNow()?.containers ?? []);
  }

  /** Containers of a release, oldest first, from memory; `undefined` while the state is unknown. */
  knownOf(release: string): ContainerRecord[] | undefined {
    return this.#options.state.isAvailable ? this.known().filter(isOfRelease(release)) : undefined;
  }

  /** Loads the containers of a release, oldest first. @param more IDs of containers that may not be listed yet */
  async refreshOf(release: string | undefined, more: readonly string[]): Promise<ContainerRecord[]> {
    const listed = (await this.all()).map(({ id }) => id);
    const found: ContainerRecord[] = [];
    for (const id of new Set([...listed, ...more])) {
      const container = await this.#options.state.refreshContainer(id);
      if (container !== undefined) found.push(container);
    }
    return this.#own(found).filter(isOfRelease(release));
  }

  /** Containers of the release that was started last. */
  async lastStarted(): Promise<ContainerRecord[]> {
    const all = await this.all();
    const [last] = all.toSorted((a, b) => (b.startedAtMs ?? 0) - (a.startedAtMs ?? 0));
    return all.filter(isOfRelease(last && releaseOf(last)));
  }

  /** IDs of all or of the running containers, from the engine: its events for new containers may not have arrived. */
  async listed(which: "all" | "running"): Promise<string[]> {
    return (await this.infos(which)).map(({ Id }) => Id);
  }

  /** Like {@link listed}, as the engine describes them. */
  async infos(which: "all" | "running"): Promise<ContainerInfo[]> {
    const { ownership } = this.#options;
    const options = { all: which === "all", filters: ownership.filter(this.#appId) };
    const containers = await this.#options.engine.operate(
      `list the containers of app "${this.#appId}"`,
      (docker) => docker.listContainers(options),
      { timeoutMs: listTimeoutMs },
    );
    return containers.filter(({ Names: names, Labels: labels }) =>
      ownership.isOwn("container", this.#appId, { names, labels }),
    );
  }

  async start(id: string): Promise<void> {
    await this.#change(`start ${this.#one}`, id, (container) => container.start().catch(unlessStatus(304)));
  }

  /** Renames a container that cannot start, to free its name. It no longer belongs to a release. */
  async renameBlocked(container: Pick<ContainerRecord, "id" | "name">): Promise<void> {
    const { id } = container;
    await this.#change(`set ${this.#one} aside`, id, (found) =>
      found.rename({ name: blockedName(container) }),
    );
    await this.#options.state.refreshContainer(id);
  }

  /** Removes renamed containers, as far as the engine allows it. */
  async removeBlocked(): Promise<void> {
    await this.remove(({ wasSetAside }) => wasSetAside).catch(() => undefined);
  }

  async pause(id: string): Promise<void> {
    await this.#change(`pause ${this.#one}`, id, (container) => container.pause());
  }

  /** Resolves to whether it was paused. */
  async unpause(id: string): Promise<boolean> {
    if ((await this.#options.state.refreshContainer(id))?.state !== "paused") return false;
    await this.#change(`unpause ${this.#one}`, id, (container) =>
      container.unpause().catch(unlessStatus(404, 409)),
    );
    return true;
  }

  async stop(id: string, graceMs: number): Promise<void> {
    const options: OperationOptions = { timeoutMs: graceMs + stopMarginMs, waitsFor: "stop" };
    const stop = (container: Container): Promise<unknown> =>
      container.stop({ t: Math.ceil(graceMs / 1000) }).catch(unlessStatus(304, 404));
    await this.#change(`stop ${this.#one}`, id, stop, options);
  }

  /**
   * Restarts a container that has lost what it depends on. It gets its grace period only if its first process handles the
   * stop signal: otherwise the wait would only prolong the outage.
   */
  async restart(id: string, graceMs: number): Promise<void> {
    const options: OperationOptions = { timeoutMs: graceMs + stopMarginMs, waitsFor: "start" };
    await this.#change(
      `restart ${this.#one}`,
      id,
      async (container) => {
        try {
          const { State: state, Config: config } = await container.inspect();
          const isUseless = await isIgnoredSignal(state.Pid, stopSignalOf(config));
          await container.restart({ t: isUseless ? 0 : Math.ceil(graceMs / 1000) });
        } catch (error) {
          unlessStatus(404)(error);
        }
      },
      options,
    );
  }

  /** Ends all running containers together. */
  async endAll(graceMs: number): Promise<void> {
    await Promise.all((await this.listed("running")).map((id) => this.stop(id, graceMs)));
  }

  /**
   * Ends all running containers in dependency order.
   * @param depthOf length of a service's dependency chain: services with the longest end first, equal ones together
   */
  async endInTurn(graceMs: number, depthOf: (service: string) => number): Promise<void> {
    const up = (await this.all()).filter(({ state }) => isUpState(state));
    const byDepth = Map.groupBy(up, ({ composeService = "" }) => depthOf(composeService));
    for (const depth of [...byDepth.keys()].sort((a, b) => b - a)) {
      await Promise.all((byDepth.get(depth) ?? []).map(({ id }) => this.stop(id, graceMs)));
    }
  }

  /** Removes the chosen containers, by default all. Resolves to the removed ones. */
  async remove(
    isChosen: (
      traits: { release: string; isUp: boolean; wasSetAside: boolean },
      container: ContainerRecord,
    ) => boolean = () => true,
  ): Promise<ContainerRecord[]> {
    const removed: ContainerRecord[] = [];
    for (const container of (await this.all()).toReversed()) {
      const { id, state } = container;
      const traits = { isUp: isUpState(state), wasSetAside: isRenamed(container) };
      if (!isChosen({ release: releaseOf(container) ?? "", ...traits }, container)) continue;
      await this.#change(`remove ${this.#one}`, id, removeWhole);
      removed.push(container);
    }
    return removed;
  }

  get #one(): string {
    return `a container of app "${this.#appId}"`;
  }

  async #change(
    what: string,
    id: string,
    work: (container: Container) => Promise<unknown>,
    options: OperationOptions = { timeoutMs: changeTimeoutMs },
  ): Promise<void> {
    await this.#options.engine.operate(what, (docker) => work(docker.getContainer(id)), options);
  }

  #own(containers: readonly ContainerRecord[]): ContainerRecord[] {
    return containers
      .filter((container) => this.isOwn(container))
      .toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  }
}

/** Resolves when the container is gone, even if another client, such as a swarm, is already removing it. */
async function removeWhole(container: Container): Promise<void> {
  try {
    // Includes anonymous volumes, which nobody could find later.
    await container.remove({ force: true, v: true });
  } catch (error) {
    const { statusCode, message } = error as { statusCode?: number; message: string };
    if (statusCode === 404) return;
    // Only the text distinguishes this conflict: the container shows as running until it is removed.
    if (statusCode !== 409 || !message.includes("already in progress")) throw error;
    await container.wait({ condition: "removed" }).catch(unlessStatus(404));
  }
}

function isOfRelease(release: string | undefined): (container: ContainerRecord) => boolean {
  return (container) => releaseOf(container) === release;
}

function stopSignalOf(config: object): string {
  return (config as { StopSignal?: string }).StopSignal || "SIGTERM";
}

/** An error handler that ignores responses with these statuses and throws all other errors. */
function unlessStatus(...codes: number[]): (error: unknown) => void {
  return (error) => {
    if (!codes.includes((error as { statusCode?: number }).statusCode ?? 0)) throw error;
  };
}
