/** The last observed state of one app on a swarm. */
import { portHealth } from "../port-health.ts";
import { PortProbe } from "../port-probe.ts";
import type { HealthSpec } from "../process/supervisor-types.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { ObservedApp } from "../containers/observed-app.ts";
import { placementOf } from "./stack-plan.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";
import { isUnknownTask, isUpTask, shownTasks, statusOfStack } from "./task-status.ts";

export class SwarmApp extends ObservedApp {
  /** Probes of running tasks, by task ID. */
  readonly #probes = new Map<string, PortProbe>();
  #app: RunnableApp | undefined;
  #services: readonly SwarmService[] = [];
  #tasks: readonly SwarmTask[] = [];

  get shouldRun(): boolean {
    return this.#app !== undefined;
  }

  /** Whether a node that does not respond may still run a task. */
  get isPartlyUnknown(): boolean {
    return this.#tasks.some(isUnknownTask);
  }

  /** All tasks that the swarm knows, including ended ones. */
  get tasks(): readonly SwarmTask[] {
    return this.#tasks;
  }

  /** Sets the desired state to running. */
  setRunning(app: RunnableApp): void {
    this.#app = app;
  }

  /** Sets the desired state to stopped. */
  setStopped(): void {
    this.#app = undefined;
    this.#endProbes(new Set());
  }

  detach(): void {
    this.setStopped();
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
    const status = statusOfStack({ services, tasks, shouldRun: this.shouldRun, probed: this.#probed() });
    this.setStatus(services.length === 0 ? status : { ...status, tasks: shownTasks(services, tasks) });
  }

  /** Probes each task at its node, or all tasks together if every node answers for them. */
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
      const target = {
        ...spec,
        ...(spec.tcp && { tcp: { ...spec.tcp, ...host } }),
        ...(spec.http && { http: { ...spec.http, ...host } }),
      };
      this.#probes.set(id, new PortProbe(target, sinceMs, { onChange: () => this.#publish() }));
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

  #endProbes(retained: ReadonlySet<string>): void {
    for (const [id, probe] of this.#probes) {
      if (retained.has(id)) continue;
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

  /** The swarm is unreachable. */
  lost(reason: string): void {
    if (this.shouldRun) this.setStatus({ ...stoppedStatus, state: "UNKNOWN", reason });
  }
}
