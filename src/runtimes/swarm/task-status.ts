/** From what a swarm says of the tasks of an app to what svc says of the app. */
import { worstHealth } from "../container-status.ts";
import { stoppedStatus, type RuntimeStatus, type RuntimeTask } from "../runtime.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";

export interface StackFacts {
  readonly services: readonly Pick<SwarmService, "id" | "part" | "replicas" | "spec">[];
  readonly tasks: readonly SwarmTask[];
  /** Whether svc means the app to run. */
  readonly isWanted: boolean;
  /** What svc's own look at its port found; absent where it does not look. */
  readonly probed?: { readonly health: RuntimeStatus["health"]; readonly reason?: string } | undefined;
}

/** Ends of a task that were not asked for. */
const failures: ReadonlySet<string> = new Set(["failed", "rejected", "orphaned"]);

export function statusOfStack({ services, tasks, isWanted, probed }: StackFacts): RuntimeStatus {
  if (services.length === 0) {
    if (!isWanted) return stoppedStatus;
    return {
      ...stoppedStatus,
      reason: "its service was removed from the swarm outside of svc",
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

/** A project of which something runs is up; what does not work of it shows in its health. */
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

/** Whether the swarm itself asks how healthy its tasks are: until they are, they do not run. */
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
  const wanted = tasks.filter(isMeant);
  const restarts = tasks.filter(({ state }) => state === "failed" || state === "rejected").length;
  const known = { ...stoppedStatus, restarts };
  const why = whyNot(tasks);
  if (running.length > 0) {
    const isWhole = running.length >= replicas;
    const count = `${running.length} of ${replicas} tasks run${why === "" ? "" : `: ${why}`}`;
    return {
      ...known,
      state: "RUNNING",
      reason: isWhole ? "" : count,
      health: isHealthChecked(service) ? (isWhole ? "healthy" : "unhealthy") : "none",
      ...(isHealthChecked(service) && !isWhole && { healthReason: count }),
      startedAtMs: Math.min(...running.map(({ sinceMs }) => sinceMs)),
    };
  }
  if (wanted.length > 0 || tasks.length === 0) return { ...known, state: "STARTING", reason: why };
  const last = newest(tasks);
  const exitCode = last?.exitCode;
  const ended = { ...known, ...(exitCode !== undefined && { exitCode }) };
  if (last?.state === "complete") return ended;
  return { ...ended, state: "CRASHED", reason: why === "" ? "its tasks ended" : why };
}

/** What is shown of them: the newest of each slot of each service. */
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
          const message = shown.error || whyNot(all, isUpTask(shown));
          return [{ service: part, slot, node, state, message, sinceMs }];
        });
    });
}

/** The swarm means it to run. */
export function isMeant({ desired }: SwarmTask): boolean {
  return desired === "running" || desired === "ready";
}

export function isUpTask(task: SwarmTask): boolean {
  return task.state === "running" && isMeant(task);
}

/** What keeps tasks from running, in the swarm's words; the newest of them. */
function whyNot(tasks: readonly SwarmTask[], isFine = false): string {
  if (isFine) return "";
  const told = newest(
    tasks.filter(({ state, error }) => error !== "" && (failures.has(state) || state === "pending")),
  );
  if (told === undefined) return "";
  return told.node === "" ? told.error : `${told.error} on ${told.node}`;
}

function newest(tasks: readonly SwarmTask[]): SwarmTask | undefined {
  return tasks.toSorted((a, b) => a.createdAtMs - b.createdAtMs).at(-1);
}
