/** Converts the swarm's task states to the status of an app. */
import { worstHealth } from "../containers/container-status.ts";
import { stoppedStatus, type RuntimeStatus, type RuntimeTask } from "../runtime-status.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";

export interface StackFacts {
  readonly services: readonly Pick<SwarmService, "id" | "part" | "replicas" | "spec">[];
  readonly tasks: readonly SwarmTask[];
  /** Whether the app should run. */
  readonly shouldRun: boolean;
  /** Result of svc's own port probe; absent without one. */
  readonly probed?: { readonly health: RuntimeStatus["health"]; readonly reason?: string } | undefined;
}

/** States of tasks that ended unexpectedly. */
const failures: ReadonlySet<string> = new Set(["failed", "rejected", "orphaned"]);

export function statusOfStack(facts: StackFacts): RuntimeStatus {
  const status = statusOfServices(facts);
  const unknown = describeUnknown(facts.tasks);
  if (unknown === "") return status;
  return { ...status, reason: status.reason === "" ? unknown : `${status.reason}; ${unknown}` };
}

/**
 * The task's node reported it as running and no longer responds; the swarm ends or keeps the task when the node is
 * back.
 */
export function isUnknownTask({ state, nodeState }: SwarmTask): boolean {
  return (state === "running" || state === "starting") && nodeState !== "" && nodeState !== "ready";
}

function describeUnknown(tasks: readonly SwarmTask[]): string {
  const byNode = Map.groupBy(tasks.filter(isUnknownTask), ({ node, nodeState }) => `${node} is ${nodeState}`);
  return [...byNode]
    .map(
      ([what, { length }]) =>
        `${what}: ${length} earlier ${length === 1 ? "task" : "tasks"} may still run there`,
    )
    .sort()
    .join("; ");
}

function statusOfServices({ services, tasks, shouldRun, probed }: StackFacts): RuntimeStatus {
  if (services.length === 0) {
    if (!shouldRun) return stoppedStatus;
    return {
      ...stoppedStatus,
      reason: "the app's service was removed from the swarm outside of svc",
      isLost: true,
    };
  }
  const all = services.map((service) => ({
    part: service.part,
    status: statusOfService(
      service,
      tasks.filter(({ serviceId }) => serviceId === service.id),
    ),
  }));
  const [only, ...others] = all;
  const status = only !== undefined && others.length === 0 ? only.status : statusOfSeveral(all);
  if (status.state !== "RUNNING" || status.health === "unhealthy" || probed === undefined) return status;
  const { health, reason } = probed;
  return { ...status, health, ...(reason !== undefined && { healthReason: reason }) };
}

interface PartStatus {
  readonly part: string;
  readonly status: RuntimeStatus;
}

/** A project runs if any of its services does; failing services show in its health. */
function statusOfSeveral(all: readonly PartStatus[]): RuntimeStatus {
  const running = all.flatMap(({ status }) => (status.state === "RUNNING" ? [status] : []));
  const troubled = all.filter(({ status: { state } }) => state === "CRASHED" || state === "STARTING");
  const worst = troubled.find(({ status: { state } }) => state === "CRASHED") ?? troubled[0];
  const reasonOf = ({ part, status: { state, reason } }: PartStatus): string =>
    reason === ""
      ? state === "RUNNING"
        ? ""
        : `service "${part}" is ${state}`
      : `service "${part}": ${reason}`;
  const reason = [...troubled, ...all].map(reasonOf).find((text) => text !== "") ?? "";
  const exitCode = worst?.status.exitCode;
  const known = {
    ...stoppedStatus,
    restarts: all.reduce((sum, { status }) => sum + status.restarts, 0),
    ...(exitCode !== undefined && { exitCode }),
  };
  if (running.length === 0) {
    const state = worst?.status.state ?? "STOPPED";
    return { ...known, state, reason: state === "STOPPED" ? "" : reason };
  }
  return {
    ...known,
    state: "RUNNING",
    reason,
    health: worst === undefined ? worstHealth(running) : "unhealthy",
    ...(worst !== undefined && { healthReason: reason }),
    ...(worst?.status.state === "CRASHED" && { isPartial: true }),
    startedAtMs: Math.min(...running.flatMap(({ startedAtMs }) => startedAtMs ?? [])),
  };
}

/**
 * The swarm stops a task whose health check fails, and treats an exit with 0 as success without a restart. Its
 * reports do not distinguish the two.
 */
const endedUnhealthy =
  "the app's task exited with code 0, possibly because the swarm stopped it for a failed health check; restart the app";

/** Whether the swarm checks the tasks' health; tasks count as running only once they are healthy. */
export function isHealthChecked({ spec }: Pick<SwarmService, "spec">): boolean {
  const { ContainerSpec: container } = spec.TaskTemplate as { ContainerSpec?: ContainerHealth };
  const [kind = "NONE"] = container?.Healthcheck?.Test ?? [];
  return kind !== "NONE";
}

interface ContainerHealth {
  readonly Healthcheck?: { readonly Test?: string[] | null };
}

function statusOfService(
  service: Pick<SwarmService, "replicas" | "spec">,
  tasks: readonly SwarmTask[],
): RuntimeStatus {
  const { replicas } = service;
  const running = tasks.filter(isUpTask);
  const desired = tasks.filter(isDesired);
  const restarts = tasks.filter(({ state }) => state === "failed" || state === "rejected").length;
  const known = { ...stoppedStatus, restarts };
  const why = explainTasks(tasks);
  if (running.length > 0) {
    const isComplete = running.length >= replicas;
    const count = `${running.length} of ${replicas} tasks run${why === "" ? "" : `: ${why}`}`;
    return {
      ...known,
      state: "RUNNING",
      reason: isComplete ? "" : count,
      health: isHealthChecked(service) ? (isComplete ? "healthy" : "unhealthy") : "none",
      ...(isHealthChecked(service) && !isComplete && { healthReason: count }),
      startedAtMs: Math.min(...running.map(({ sinceMs }) => sinceMs)),
    };
  }
  if (desired.length > 0 || tasks.length === 0) return { ...known, state: "STARTING", reason: why };
  const last = newest(tasks);
  const exitCode = last?.exitCode;
  const ended = { ...known, ...(exitCode !== undefined && { exitCode }) };
  if (last?.state === "complete" && !isHealthChecked(service)) return ended;
  if (last?.state === "complete") return { ...ended, state: "CRASHED", reason: endedUnhealthy };
  return { ...ended, state: "CRASHED", reason: why === "" ? "the app's tasks ended" : why };
}

/** The newest task of each slot of each service. */
export function shownTasks(services: StackFacts["services"], tasks: readonly SwarmTask[]): RuntimeTask[] {
  return services
    .toSorted((a, b) => (a.part < b.part ? -1 : 1))
    .flatMap(({ id, part, replicas }) => {
      const bySlot = Map.groupBy(
        tasks.filter(({ serviceId }) => serviceId === id),
        ({ slot }) => slot,
      );
      return [...bySlot]
        .filter(([slot, all]) => slot <= replicas || all.some(isUpTask))
        .sort(([a], [b]) => a - b)
        .flatMap(([slot, all]) => {
          const shown = all.find(isUpTask) ?? newest(all);
          if (shown === undefined) return [];
          const { node, state, sinceMs } = shown;
          const message = shown.error || explainTasks(all, isUpTask(shown));
          return [{ service: part, slot, node, state, message, sinceMs }];
        });
    });
}

/** Whether the swarm intends the task to run. */
export function isDesired({ desired }: SwarmTask): boolean {
  return desired === "running" || desired === "ready";
}

export function isUpTask(task: SwarmTask): boolean {
  return task.state === "running" && isDesired(task);
}

/** The newest error that keeps tasks from running, in the swarm's words. */
function explainTasks(tasks: readonly SwarmTask[], isFine = false): string {
  if (isFine) return "";
  const reported = newest(
    tasks.filter(({ state, error }) => error !== "" && (failures.has(state) || state === "pending")),
  );
  if (reported === undefined) return "";
  return reported.node === "" ? reported.error : `${reported.error} on ${reported.node}`;
}

function newest(tasks: readonly SwarmTask[]): SwarmTask | undefined {
  return tasks.toSorted((a, b) => a.createdAtMs - b.createdAtMs).at(-1);
}
