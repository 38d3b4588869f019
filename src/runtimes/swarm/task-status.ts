/** From what a swarm says of the tasks of an app to what svc says of the app. */
import { stoppedStatus } from "../container-status.ts";
import type { RuntimeStatus, RuntimeTask } from "../runtime.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";

export interface TaskFacts {
  readonly service: Pick<SwarmService, "replicas"> | undefined;
  readonly tasks: readonly SwarmTask[];
  /** Whether svc means the app to run. */
  readonly isWanted: boolean;
  /** Whether the swarm itself looks after its health. */
  readonly isChecked: boolean;
}

/** Ends of a task that were not asked for. */
const failures: ReadonlySet<string> = new Set(["failed", "rejected", "orphaned"]);

export function statusOfTasks({ service, tasks, isWanted, isChecked }: TaskFacts): RuntimeStatus {
  if (service === undefined) {
    if (!isWanted) return stoppedStatus;
    return {
      ...stoppedStatus,
      reason: "its service was removed from the swarm outside of svc",
      isLost: true,
    };
  }
  const { replicas } = service;
  const running = tasks.filter((task) => isUpTask(task));
  const wanted = tasks.filter(({ desired }) => desired === "running" || desired === "ready");
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
      health: isChecked ? (isWhole ? "healthy" : "unhealthy") : "none",
      ...(isChecked && !isWhole && { healthReason: count }),
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

/** What is shown of them: the newest of each slot. */
export function shownTasks(tasks: readonly SwarmTask[], replicas: number): RuntimeTask[] {
  const bySlot = Map.groupBy(tasks, ({ slot }) => slot);
  return [...bySlot]
    .filter(([slot]) => slot <= replicas || bySlot.get(slot)?.some((task) => isUpTask(task)))
    .sort(([a], [b]) => a - b)
    .flatMap(([slot, all]) => {
      const shown = all.find((task) => isUpTask(task)) ?? newest(all);
      if (shown === undefined) return [];
      const { node, state, sinceMs } = shown;
      return [{ slot, node, state, message: shown.error || whyNot(all, isUpTask(shown)), sinceMs }];
    });
}

export function isUpTask({ state, desired }: SwarmTask): boolean {
  return state === "running" && (desired === "running" || desired === "ready");
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
