/** Launches services on a swarm and replaces their tasks, and waits for the results. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { RollOptions } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { startFailed } from "../start-failed.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import type { ContainerRuntimeOptions } from "../containers/container-runtime.ts";
import type { DockerStacksOptions } from "./docker-stacks.ts";
import { readTaskLog } from "./service-logs.ts";
import {
  blockingTask,
  hasTerminal,
  isOfLaunch,
  isRelease,
  isReplaced,
  isUnderway,
  isComplete,
  lacksSomeNodes,
  lacksAllNodes,
  isWithoutNode,
  mayEnd,
  noNodeMs,
  startTimeoutMs,
  waitingOf,
  nodeRequirements,
  withoutNode,
  type LaunchedService,
} from "./service-launch.ts";
import { withExtraParallelism, type ServicePlan, type StackPlan } from "./stack-plan.ts";
import { taskName, type ServiceSpec, type SwarmApi, type SwarmService, type SwarmTask } from "./swarm-api.ts";
import type { SwarmApp } from "./swarm-app.ts";
import { createTaskFiles } from "./task-files.ts";
import { isHealthChecked } from "./task-status.ts";

export interface SwarmRolloutOptions extends Pick<
  ContainerRuntimeOptions & DockerStacksOptions,
  "engine" | "ownership" | "userHelpers" | "credentialsOf" | "log"
> {
  readonly api: SwarmApi;
  /** Loads the current tasks of all apps. */
  readonly refresh: () => Promise<void>;
}

export const startPollMs = 300;

export class SwarmRollout {
  readonly #options: SwarmRolloutOptions;
  readonly #api: SwarmApi;

  constructor(options: SwarmRolloutOptions) {
    this.#options = options;
    this.#api = options.api;
  }

  /** Creates or updates the service. */
  async launch(app: RunnableApp, watched: SwarmApp, plan: ServicePlan): Promise<LaunchedService> {
    const { part, image, spec: planned } = plan;
    const spec = await this.#withFiles(app, plan);
    const credentials = await this.#options.credentialsOf(app.ownerUid, image);
    const existing = (await this.#api.services(app.id)).find((service) => service.part === part);
    const earlier = new Set(watched.tasks.map(({ id }) => id));
    if (existing !== undefined) await this.#api.update(existing, spec, credentials);
    const serviceId = existing?.id ?? (await this.#api.create(spec, credentials));
    const { Replicas: replicas } = planned.Mode.Replicated;
    const release = planned.Labels[releaseLabel] ?? "";
    const isChecked = isHealthChecked({ spec: planned });
    return {
      ...{ serviceId, part, release, earlier, replicas, isChecked },
      mayEnd: mayEnd(planned) && !isChecked,
      hasTerminal: hasTerminal({ spec: planned }),
    };
  }

  async #withFiles(app: RunnableApp, { spec, files }: ServicePlan): Promise<ServiceSpec> {
    const { ownership, userHelpers } = this.#options;
    const { user: owner } = await userHelpers.as(app.uid);
    // Root's containers may run as whatever user their image names.
    const mode = app.ownerUid === 0 ? 0o444 : 0o400;
    const labels = ownership.labels("file", app.id);
    const references = await createTaskFiles(this.#api, files, { labels, owner, mode });
    const container = spec.TaskTemplate["ContainerSpec"] as JsonObject;
    return {
      ...spec,
      TaskTemplate: { ...spec.TaskTemplate, ContainerSpec: { ...container, ...references } },
    };
  }

  /** Services may wait for a node if another one runs. @throws SvcError `start_failed` if all wait */
  async requireAnyPlaced(
    app: RunnableApp,
    watched: SwarmApp,
    { steps }: StackPlan,
    waiting: readonly LaunchedService[],
  ): Promise<void> {
    const [first] = waiting;
    if (first === undefined) return;
    const [task] = waitingOf(first.serviceId, watched.tasks);
    if (waiting.length === steps.flat().length && task !== undefined)
      throw await this.#startFailed(app, first, task);
    const services = waiting.map(({ part }) => part);
    this.#options.log.warn({ app: app.id, services }, "services wait for a node of the swarm");
  }

  /**
   * Resolves when all tasks run, or all that nodes are available for: the swarm starts the others when a node becomes
   * available.
   * @param mayWait whether a service may stay without a node while a node of the swarm is down, paused or drained
   * @returns the services without a node
   * @throws SvcError `start_failed` with the swarm's message
   */
  async untilUp(
    app: RunnableApp,
    watched: SwarmApp,
    launched: readonly LaunchedService[],
    { signal, mayWait = false }: { signal?: AbortSignal | undefined; mayWait?: boolean } = {},
  ): Promise<LaunchedService[]> {
    const begunMs = Date.now();
    for (;;) {
      signal?.throwIfAborted();
      await this.#options.refresh();
      const waited = Date.now() - begunMs;
      const isDone = (service: LaunchedService): boolean =>
        isComplete(service, watched.tasks) || (waited > noNodeMs && lacksSomeNodes(service, watched.tasks));
      const late = launched.filter((service) => !isDone(service));
      const waiting =
        mayWait && waited > noNodeMs ? late.filter((service) => lacksAllNodes(service, watched.tasks)) : [];
      const passed = waiting.length > 0 && (await this.#isNodeMissing()) ? waiting : [];
      const missing = late.filter((service) => !passed.includes(service));
      if (missing.length === 0) return passed;
      for (const service of missing) {
        const why = blockingTask(service, watched.tasks, waited);
        if (why !== undefined) throw await this.#startFailed(app, service, why);
      }
      const isOver = watched.status.state === "CRASHED" || watched.status.state === "STOPPED";
      if (isOver || waited > startTimeoutMs) {
        throw startFailed(app.id, watched.status.reason || "the swarm created no task for it");
      }
      await sleep(startPollMs);
    }
  }

  async #startFailed(
    app: RunnableApp,
    { part, hasTerminal: isTerminal }: Pick<LaunchedService, "part" | "hasTerminal">,
    { id, state, error, node, exitCode }: SwarmTask,
  ): Promise<SvcError> {
    const isBad = state === "failed" || state === "rejected";
    const lastLines = isBad ? await this.#lastLines(id, isTerminal) : [];
    const whose = part === "" ? "" : `service "${part}": `;
    const at = node === "" ? "" : ` on ${node}`;
    const plain =
      state === "complete" ? "the task ended before its health check passed" : `the task is ${state}`;
    const words = error === "" ? plain : error;
    return startFailed(app.id, `${whose}${words}${at}`, {
      exitCode: isBad ? exitCode : undefined,
      lastLines,
    });
  }

  /**
   * @throws SvcError `not_possible` if a task has no node: the swarm would wait for it before replacing other tasks
   */
  async requireNodes(
    { id }: RunnableApp,
    watched: SwarmApp,
    services: readonly SwarmService[],
  ): Promise<void> {
    await this.#options.refresh();
    const waiting = watched.tasks.find((task) => isWithoutNode(task));
    if (waiting === undefined) return;
    const part = services.find((service) => service.id === waiting.serviceId)?.part ?? "";
    throw new SvcError(
      "not_possible",
      `task ${taskName(part, waiting.slot)} of app "${id}" has no node (${waiting.error}), and an upgrade would wait for it; ${nodeRequirements(id)}, or stop it first`,
    );
  }

  async rollService(to: RunnableApp, watched: SwarmApp, plan: ServicePlan, how: RollOptions): Promise<void> {
    const existing = await this.#untilSettled(to, plan, how.signal);
    if (existing !== undefined && isRelease(existing, plan)) return;
    await this.#options.refresh();
    if (existing !== undefined && how.isBack === true) {
      await this.#rollServiceBack(to, watched, plan, existing);
      return;
    }
    const launched = await this.launch(to, watched, plan);
    if (existing !== undefined) {
      const [waiting] = await this.#untilRolled(to, watched, launched, { signal: how.signal });
      if (waiting !== undefined) throw withoutNode(to, launched, waiting);
    }
    await this.untilUp(to, watched, [launched], { signal: how.signal });
  }

  /** On a rollback, tasks without a node are left waiting, and all others are rolled back. */
  async #rollServiceBack(
    to: RunnableApp,
    watched: SwarmApp,
    plan: ServicePlan,
    existing: SwarmService,
  ): Promise<void> {
    let waitingCount = waitingOf(existing.id, watched.tasks).length;
    for (;;) {
      const launched = await this.launch(to, watched, withExtraParallelism(plan, waitingCount));
      const waiting = await this.#untilRolled(to, watched, launched, { passing: waitingCount });
      if (waiting.length <= waitingCount) return;
      waitingCount = waiting.length;
    }
  }

  /**
   * The existing service. If it already has the planned release, resolves once the swarm has finished its update or
   * rollback: a further update would replace nothing, and the swarm would never report its end.
   * @throws SvcError `start_failed` on a timeout
   */
  async #untilSettled(
    app: RunnableApp,
    plan: ServicePlan,
    signal: AbortSignal | undefined,
  ): Promise<SwarmService | undefined> {
    const begunMs = Date.now();
    for (;;) {
      signal?.throwIfAborted();
      const services = await this.#api.services(app.id);
      const existing = services.find(({ part }) => part === plan.part);
      if (existing === undefined || !isRelease(existing, plan) || !isUnderway(existing)) return existing;
      if (Date.now() - begunMs > startTimeoutMs)
        throw startFailed(app.id, "the swarm did not finish its update");
      await sleep(startPollMs);
    }
  }

  /**
   * Resolves with no tasks when the swarm has replaced all, or with the tasks that have been without a node for too
   * long: when there are more than `passing` of them, or when all others are replaced.
   * @throws SvcError `start_failed` when the swarm rolls back
   */
  async #untilRolled(
    app: RunnableApp,
    watched: SwarmApp,
    launched: LaunchedService,
    { signal, passing = 0 }: { signal?: AbortSignal | undefined; passing?: number },
  ): Promise<readonly SwarmTask[]> {
    const begunMs = Date.now();
    // A replaced task occupies its port until it ends.
    const patienceMs = noNodeMs + app.manifest.stop.graceMs;
    let placedAtMs = begunMs;
    for (;;) {
      signal?.throwIfAborted();
      const update = (await this.#api.service(launched.serviceId))?.update;
      if (update?.state === "completed") return [];
      await this.#options.refresh();
      if (update !== undefined && update.state !== "updating") {
        const own = watched.tasks.filter((task) => isOfLaunch(launched, task));
        const bad = own.find(({ state }) => state === "failed" || state === "rejected");
        if (bad !== undefined) throw await this.#startFailed(app, launched, bad);
        throw startFailed(app.id, update.message || `the update state of the swarm is ${update.state}`);
      }
      const waiting = waitingOf(launched.serviceId, watched.tasks);
      if (waiting.length === 0) placedAtMs = Date.now();
      const isEnough = waiting.length > passing || isReplaced(launched, watched.tasks);
      if (isEnough && Date.now() - placedAtMs > patienceMs) return waiting;
      if (Date.now() - begunMs > startTimeoutMs)
        throw startFailed(app.id, "the swarm did not finish its update");
      await sleep(startPollMs);
    }
  }

  /**
   * If svc probes the app's health, waits until it is known. A rollback accepts
   * an unhealthy app, because this version ran before.
   * @throws SvcError `start_failed`
   */
  async untilHealthy(
    app: RunnableApp,
    watched: SwarmApp,
    { signal, isBack = false }: RollOptions,
  ): Promise<void> {
    const begunMs = Date.now();
    await this.#options.refresh();
    for (;;) {
      signal?.throwIfAborted();
      const { health, healthReason = "" } = watched.status;
      if (health === "healthy" || health === "none") return;
      if (health === "unhealthy" || Date.now() - begunMs > startTimeoutMs) {
        if (isBack) return;
        throw startFailed(app.id, `the health check fails: ${healthReason}`);
      }
      await sleep(startPollMs);
    }
  }

  /** The output of this task only: other tasks' output does not explain its end. */
  #lastLines(taskId: string, isTerminal: boolean): Promise<string[]> {
    const options = { tail: 20, hasTerminal: isTerminal };
    return readTaskLog(this.#options.engine, taskId, options).catch(() => []);
  }

  async #isNodeMissing(): Promise<boolean> {
    return (await this.#api.nodes()).some(({ takesTasks }) => !takesTasks);
  }
}
