/** The tasks of apps on this host: an engine cannot freeze, measure or open the containers of other nodes. */
import { WatchedSizes } from "../../engine/container-attachment.ts";
import { namedObject, type ContainerRecord } from "../../engine/container-record.ts";
import { ContainerSampler } from "../../engine/container-sampler.ts";
import { SvcError } from "../../errors.ts";
import type { Terminal } from "../../lib/terminal.ts";
import type {
  FreezingRuntime,
  RuntimeLimit,
  RuntimeUsage,
  TerminalRequest,
  TerminalRuntime,
  UsageRuntime,
} from "../capabilities.ts";
import { AppContainers, type AppContainersOptions } from "../containers/app-containers.ts";
import type { ContainerRuntimeOptions } from "../containers/container-runtime.ts";
import { openAppTerminal } from "../containers/container-terminals.ts";
import { sampleApps } from "../containers/container-usage.ts";
import { limitsOf } from "../limits.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { RuntimeTask } from "../runtime-status.ts";

export interface LocalTasksOptions
  extends AppContainersOptions, Pick<ContainerRuntimeOptions, "events" | "state" | "programs"> {
  /** The tasks of an app on all nodes, from memory. */
  tasksOf: (appId: string) => readonly RuntimeTask[];
}

export class LocalTasks implements FreezingRuntime, UsageRuntime, TerminalRuntime {
  readonly #options: LocalTasksOptions;
  readonly #sampler: ContainerSampler;
  readonly #sizes = new WatchedSizes();

  constructor(options: LocalTasksOptions) {
    this.#options = options;
    this.#sampler = new ContainerSampler(options);
  }

  /** The app's containers on this host: if it has data, all of them are here. */
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

  /** Opens terminals of tasks on this host: for other nodes, connect to those. */
  async openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    const { engine, events, programs } = this.#options;
    await this.#options.state.containers();
    const running = this.#localOf(app.id);
    const elsewhere = this.#options.tasksOf(app.id).filter(({ state }) => state === "running");
    if (running.length === 0 && elsewhere.length > 0) {
      const nodes = [...new Set(elsewhere.map(({ node }) => node))].join(", ");
      throw new SvcError("not_possible", `app "${app.id}" runs on ${nodes}; open its terminal there`);
    }
    const onDeath = events.onDeath.bind(events);
    return openAppTerminal(
      engine,
      app,
      onePerService(running),
      { sizes: this.#sizes, onDeath, programs },
      request,
    );
  }

  /** Measures tasks on this host: an engine cannot measure other nodes. */
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
      (container) =>
        container.state === "running" &&
        this.#options.ownership.isOwn("container", appId, namedObject(container)),
    );
  }
}

function onePerService(containers: readonly ContainerRecord[]): ContainerRecord[] {
  return [...new Map(containers.map((each) => [each.composeService ?? "", each])).values()];
}
