/** The containers of one app on the engine: finding, starting, stopping and removing them. */
import type { Container } from "dockerode";
import { isMadeFor, madeForFilter } from "../docker/attribution.ts";
import { isUpState, type ContainerRecord } from "../docker/container-record.ts";
import type { EngineState } from "../docker/engine-state.ts";
import type { DockerEngine, OperationOptions } from "../docker/engine.ts";
import type { EngineEvents } from "../docker/events.ts";
import { asideName, isSetAside, releaseOf } from "./stuck-containers.ts";

export interface AppContainersOptions {
  engine: DockerEngine;
  events: EngineEvents;
  state: EngineState;
  storeId: string;
}

/** On top of the grace period: SIGKILL, and the engine's own work. */
const stopMarginMs = 20_000;
const listTimeoutMs = 10_000;
const changeTimeoutMs = 60_000;

/** What asks the engine throws SvcError `unavailable` while that is away or hangs. */
export class AppContainers {
  readonly #appId: string;
  readonly #options: AppContainersOptions;

  constructor(appId: string, options: AppContainersOptions) {
    this.#appId = appId;
    this.#options = options;
  }

  isOwn({ labels }: ContainerRecord): boolean {
    return isMadeFor(this.#appId, this.#options.storeId, labels);
  }

  /** Oldest first, stopped ones too. */
  async all(): Promise<ContainerRecord[]> {
    return this.#own((await this.#options.state.containers()).containers);
  }

  /** Oldest first, from memory; none while nothing is known. */
  known(): ContainerRecord[] {
    return this.#own(this.#options.state.containersNow()?.containers ?? []);
  }

  /** Those of a release, oldest first, from memory; `undefined` while nothing is known. */
  knownOf(release: string): ContainerRecord[] | undefined {
    return this.#options.state.isAvailable ? this.known().filter(isOfRelease(release)) : undefined;
  }

  /** Those of a release, oldest first, as they are after this call. @param more ids of some that may not be listed yet */
  async refreshOf(release: string | undefined, more: readonly string[]): Promise<ContainerRecord[]> {
    const listed = (await this.all()).map(({ id }) => id);
    const found: ContainerRecord[] = [];
    for (const id of new Set([...listed, ...more])) {
      const container = await this.#options.state.refreshContainer(id);
      if (container !== undefined) found.push(container);
    }
    return this.#own(found).filter(isOfRelease(release));
  }

  /** Those of the release of which one was started last. */
  async lastStarted(): Promise<ContainerRecord[]> {
    const all = await this.all();
    const [last] = all.toSorted((a, b) => (b.startedAtMs ?? 0) - (a.startedAtMs ?? 0));
    return all.filter(isOfRelease(last && releaseOf(last)));
  }

  /** Ids of all, or of those that run, as the engine has them now: before the events of those that were just made have come. */
  async listed(which: "all" | "running"): Promise<string[]> {
    const { storeId } = this.#options;
    const options = { all: which === "all", filters: madeForFilter(this.#appId, storeId) };
    const containers = await this.#options.engine.operate(
      `list the containers of app "${this.#appId}"`,
      (docker) => docker.listContainers(options),
      { timeoutMs: listTimeoutMs },
    );
    return containers.map(({ Id }) => Id);
  }

  async start(id: string): Promise<void> {
    await this.#change(`start ${this.#one}`, id, (container) => container.start().catch(unlessStatus(304)));
  }

  /** Has its name free for another one. It is none of any release from then on. */
  async setAside(container: Pick<ContainerRecord, "id" | "name">): Promise<void> {
    const { id } = container;
    await this.#change(`set ${this.#one} aside`, id, (found) => found.rename({ name: asideName(container) }));
    await this.#options.state.refreshContainer(id);
  }

  /** Those that were set aside and are there still, as far as the engine lets them go. */
  async removeSetAside(): Promise<void> {
    await this.remove(({ wasSetAside }) => wasSetAside).catch(() => undefined);
  }

  async pause(id: string): Promise<void> {
    await this.#change(`pause ${this.#one}`, id, (container) => container.pause());
  }

  /** Resolves with whether it was paused. */
  async unpause(id: string): Promise<boolean> {
    if ((await this.#options.state.refreshContainer(id))?.state !== "paused") return false;
    await this.#change(`unpause ${this.#one}`, id, (container) =>
      container.unpause().catch(unlessStatus(404, 409)),
    );
    return true;
  }

  async stop(id: string, graceMs: number): Promise<void> {
    const options = { timeoutMs: graceMs + stopMarginMs, of: `the stop of app "${this.#appId}"` };
    const stop = (container: Container): Promise<unknown> =>
      container.stop({ t: Math.ceil(graceMs / 1000) }).catch(unlessStatus(304, 404));
    await this.#change(`stop ${this.#one}`, id, stop, options);
  }

  /** Ends all that run, together. */
  async endAll(graceMs: number): Promise<void> {
    await Promise.all((await this.listed("running")).map((id) => this.stop(id, graceMs)));
  }

  /**
   * Ends all that run, in turns.
   * @param depthOf how far a service is from those that depend on none: the deepest end first, equal ones together
   */
  async endInTurn(graceMs: number, depthOf: (service: string) => number): Promise<void> {
    const up = (await this.all()).filter(({ state }) => isUpState(state));
    const byDepth = Map.groupBy(up, ({ composeService = "" }) => depthOf(composeService));
    for (const depth of [...byDepth.keys()].sort((a, b) => b - a)) {
      await Promise.all((byDepth.get(depth) ?? []).map(({ id }) => this.stop(id, graceMs)));
    }
  }

  /** Removes those that are chosen, by default all. Resolves with what was removed. */
  async remove(
    isChosen: (
      traits: { release: string; isUp: boolean; wasSetAside: boolean },
      container: ContainerRecord,
    ) => boolean = () => true,
  ): Promise<ContainerRecord[]> {
    const removed: ContainerRecord[] = [];
    for (const container of (await this.all()).toReversed()) {
      const { id, state } = container;
      const traits = { isUp: isUpState(state), wasSetAside: isSetAside(container) };
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

/** Resolves when the container is gone, also where somebody else, such as a swarm, is at its removal already. */
async function removeWhole(container: Container): Promise<void> {
  try {
    // With the volumes that have no name: nobody could find them again.
    await container.remove({ force: true, v: true });
  } catch (error) {
    const { statusCode, message } = error as { statusCode?: number; message: string };
    if (statusCode === 404) return;
    // The words alone tell it from other conflicts: what is killed to be removed shows as running until then.
    if (statusCode !== 409 || !message.includes("already in progress")) throw error;
    await container.wait({ condition: "removed" }).catch(unlessStatus(404));
  }
}

function isOfRelease(release: string | undefined): (container: ContainerRecord) => boolean {
  return (container) => releaseOf(container) === release;
}

/** For answers that say that it is as wanted already. */
function unlessStatus(...codes: number[]): (error: unknown) => void {
  return (error) => {
    if (!codes.includes((error as { statusCode?: number }).statusCode ?? 0)) throw error;
  };
}
