/** One app on a swarm, as it was seen last. */
import { portHealth } from "../port-health.ts";
import { PortProbe } from "../port-probe.ts";
import type { HealthSpec } from "../process/supervisor-types.ts";
import { stoppedStatus, type RunnableApp, type RuntimeStatus } from "../runtime.ts";
import { ToldApp } from "../told-app.ts";
import { placementOf } from "./stack-plan.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";
import { isUpTask, shownTasks, statusOfStack } from "./task-status.ts";

export class SwarmApp extends ToldApp {
  /** Of the tasks that run, by their ids. */
  readonly #probes = new Map<string, PortProbe>();
  #app: RunnableApp | undefined;
  #services: readonly SwarmService[] = [];
  #tasks: readonly SwarmTask[] = [];

  get isWanted(): boolean {
    return this.#app !== undefined;
  }

  /** All that the swarm knows of it, ended ones too. */
  get tasks(): readonly SwarmTask[] {
    return this.#tasks;
  }

  /** It is meant to run from now on. */
  want(app: RunnableApp): void {
    this.#app = app;
  }

  /** It is not. */
  release(): void {
    this.#app = undefined;
    this.#endProbes(new Set());
  }

  detach(): void {
    this.release();
  }

  /** @param services of the app @param tasks of the app */
  take(services: readonly SwarmService[], tasks: readonly SwarmTask[]): void {
    this.#services = services;
    this.#tasks = tasks;
    this.#watchPorts();
    this.#publish();
  }

  #publish(): void {
    const [services, tasks] = [this.#services, this.#tasks];
    const status = statusOfStack({ services, tasks, isWanted: this.isWanted, probed: this.#probed() });
    this.tell(services.length === 0 ? status : { ...status, tasks: shownTasks(services, tasks) });
  }

  /** Each task is asked at its node, or all of them where every node answers for them. */
  #watchPorts(): void {
    const app = this.#app;
    const spec = app && portHealth(app);
    const watched = app === undefined || spec === undefined ? [] : this.#publishing(spec);
    const isMesh = app !== undefined && placementOf(app).ports === "mesh";
    const chosen = isMesh ? watched.slice(0, 1) : watched;
    this.#endProbes(new Set(chosen.map(({ id }) => id)));
    for (const { id, nodeAddress, sinceMs } of chosen) {
      if (this.#probes.has(id) || spec === undefined) continue;
      const host = isMesh || nodeAddress === "" ? {} : { host: nodeAddress };
      const asked = {
        ...spec,
        ...(spec.tcp && { tcp: { ...spec.tcp, ...host } }),
        ...(spec.http && { http: { ...spec.http, ...host } }),
      };
      this.#probes.set(id, new PortProbe(asked, sinceMs, { onChange: () => this.#publish() }));
    }
  }

  #publishing({ tcp, http }: HealthSpec): SwarmTask[] {
    const port = (tcp ?? http)?.port;
    const ids = new Set(
      this.#services
        .filter(({ spec }) => spec.EndpointSpec?.Ports?.some(({ PublishedPort }) => PublishedPort === port))
        .map(({ id }) => id),
    );
    return this.#tasks.filter((task) => ids.has(task.serviceId) && isUpTask(task));
  }

  #endProbes(kept: ReadonlySet<string>): void {
    for (const [id, probe] of this.#probes) {
      if (kept.has(id)) continue;
      probe[Symbol.dispose]();
      this.#probes.delete(id);
    }
  }

  #probed(): { health: RuntimeStatus["health"]; reason?: string } | undefined {
    if (this.#app === undefined || portHealth(this.#app) === undefined) return undefined;
    const all = [...this.#probes];
    const sick = all.find(([, { health }]) => health === "unhealthy");
    if (sick !== undefined) {
      const [id, { reason = "" }] = sick;
      const node = this.#tasks.find((task) => task.id === id)?.node ?? "";
      return { health: "unhealthy", reason: node === "" ? reason : `on ${node}: ${reason}` };
    }
    const isWell = all.length > 0 && all.every(([, { health }]) => health === "healthy");
    return { health: isWell ? "healthy" : "starting" };
  }

  /** The swarm cannot be asked. */
  lost(reason: string): void {
    if (this.isWanted) this.tell({ ...stoppedStatus, state: "UNKNOWN", reason });
  }
}
