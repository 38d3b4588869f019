/** Where an app runs, in words. */
import { missingTasks, taskCount } from "../../lib/task-count.ts";
import type { App } from "../transport/calls.ts";

/** `on a swarm in 3 tasks`; nothing for an app on this machine. */
export function placementText(app: App): string | undefined {
  const count = taskCount(app);
  if (app.placement === undefined || count === undefined) return undefined;
  const { running, wanted } = count;
  const isPartial = missingTasks(app) === undefined ? "" : ` (${running} of them so far)`;
  return `on a ${app.placement.on} in ${wanted} ${wanted === 1 ? "task" : "tasks"}${isPartial}`;
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
