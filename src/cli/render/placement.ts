/** Where an app runs, in words. */
import type { App } from "../transport/calls.ts";

/** `on a swarm in 3 tasks`; nothing for an app on this machine. */
export function placementText({ placement, tasks, state }: App): string | undefined {
  if (placement === undefined) return undefined;
  const { on } = placement;
  const isProject = tasks.some(({ service }) => service !== "");
  const replicas = isProject ? tasks.length : (placement.replicas ?? 1);
  const running = tasks.filter((task) => task.state === "running").length;
  const isPartial = state === "RUNNING" && running < replicas ? ` (${running} of them so far)` : "";
  return `on a ${on} in ${replicas} ${replicas === 1 ? "task" : "tasks"}${isPartial}`;
}

/** Each task with its node, and what keeps it from running. */
export function tasksText({ tasks }: App): string {
  return tasks
    .map(({ service, slot, node, state, message }) => {
      const at = node === "" ? "" : ` on ${node}`;
      return `${service === "" ? "" : `${service} `}${slot} ${state}${at}${message === "" ? "" : ` (${message})`}`;
    })
    .join(", ");
}
