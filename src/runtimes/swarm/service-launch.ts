/** Conditions of a service whose tasks are being replaced. */
import { startFailed } from "../start-failed.ts";
import type { SvcError } from "../../errors.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import type { ServicePlan } from "./stack-plan.ts";
import { taskName, type ServiceSpec, type SwarmService, type SwarmTask } from "./swarm-api.ts";
import { isDesired, isUpTask } from "./task-status.ts";

/** Long, because a node may have to pull the image first. */
export const startTimeoutMs = 10 * 60_000;
/** How long no node may be suitable, for example after a node has come back. */
export const noNodeMs = 10_000;

/** A service whose tasks are being replaced. */
export interface LaunchedService {
  readonly serviceId: string;
  readonly part: string;
  /** Release of its new tasks. */
  readonly release: string;
  readonly replicas: number;
  /** Whether the swarm checks its health. It ends a failing task, and treats its exit with 0 as success. */
  readonly isChecked: boolean;
  /** Whether its tasks may end successfully. */
  readonly mayEnd: boolean;
  readonly hasTerminal: boolean;
  /** IDs of its previous tasks. */
  readonly earlier: ReadonlySet<string>;
}

export function isOfLaunch({ serviceId, earlier }: LaunchedService, task: SwarmTask): boolean {
  return task.serviceId === serviceId && !earlier.has(task.id);
}

export function isComplete(
  { serviceId, replicas, mayEnd: may }: LaunchedService,
  tasks: readonly SwarmTask[],
): boolean {
  const own = tasks.filter((task) => task.serviceId === serviceId);
  const isThere = (task: SwarmTask): boolean => isUpTask(task) || (may && task.state === "complete");
  return own.filter(isThere).length >= replicas;
}

/** The swarm finds no node for the task. */
export function isWithoutNode(task: SwarmTask): boolean {
  return task.state === "pending" && isDesired(task) && task.error !== "";
}

export function waitingOf(serviceId: string, tasks: readonly SwarmTask[]): SwarmTask[] {
  return tasks.filter((task) => task.serviceId === serviceId && isWithoutNode(task));
}

/** All tasks that should run have the new release, with or without a node. */
export function isReplaced(
  { serviceId, release, replicas }: LaunchedService,
  tasks: readonly SwarmTask[],
): boolean {
  const desired = tasks.filter((task) => task.serviceId === serviceId && isDesired(task));
  const accounted = desired.filter((task) => isUpTask(task) || isWithoutNode(task));
  return desired.every((task) => task.release === release) && accounted.length >= replicas;
}

/** Some tasks run, and all others wait for nodes. */
export function lacksSomeNodes(launched: LaunchedService, tasks: readonly SwarmTask[]): boolean {
  return isAnyUp(launched, tasks) && isReplaced(launched, tasks);
}

/** All tasks wait for nodes. */
export function lacksAllNodes(launched: LaunchedService, tasks: readonly SwarmTask[]): boolean {
  return !isAnyUp(launched, tasks) && isReplaced(launched, tasks);
}

function isAnyUp({ serviceId }: LaunchedService, tasks: readonly SwarmTask[]): boolean {
  return tasks.some((task) => task.serviceId === serviceId && isUpTask(task));
}

export function withoutNode(
  { id }: RunnableApp,
  { part }: LaunchedService,
  { slot, error }: SwarmTask,
): SvcError {
  return startFailed(
    id,
    `task ${taskName(part, slot)} no longer has a node (${error}); ${nodeRequirements(id)}`,
  );
}

export function nodeRequirements(id: string): string {
  return `add a node, or reduce the number of tasks: svc app scale ${id} N`;
}

/** The task that prevents the service from running completely. */
export function blockingTask(
  launched: LaunchedService,
  tasks: readonly SwarmTask[],
  waitedMs: number,
): SwarmTask | undefined {
  const own = tasks.filter((task) => isOfLaunch(launched, task));
  return (
    own.find(({ state }) => state === "failed" || state === "rejected") ??
    own.find(({ state }) => launched.isChecked && state === "complete") ??
    own.find(({ state, error }) => state === "pending" && error !== "" && waitedMs > noNodeMs) ??
    (waitedMs > startTimeoutMs ? own[0] : undefined)
  );
}

export function mayEnd({ TaskTemplate: { RestartPolicy: restart } }: ServiceSpec): boolean {
  return (restart as { Condition?: string } | undefined)?.Condition !== "any";
}

/** Whether the service has the planned release. */
export function isRelease({ labels }: SwarmService, { spec }: ServicePlan): boolean {
  return labels[releaseLabel] === spec.Labels[releaseLabel];
}

/** Whether an update or rollback is in progress. */
export function isUnderway({ update }: SwarmService): boolean {
  return ["updating", "rollback_started"].includes(update?.state ?? "");
}

export function hasTerminal({ spec }: Pick<SwarmService, "spec">): boolean {
  return (spec.TaskTemplate["ContainerSpec"] as { TTY?: boolean } | undefined)?.TTY === true;
}
