/** How much of an app on a swarm runs. */

export interface TaskCount {
  readonly running: number;
  readonly wanted: number;
}

interface Placed {
  readonly placement?: { readonly replicas?: number | undefined } | undefined;
  readonly tasks: readonly { readonly service: string; readonly state: string }[];
}

/** Nothing for an app on this machine. What came to its end of a project is not waited for. */
export function taskCount({ placement, tasks }: Placed): TaskCount | undefined {
  if (placement === undefined) return undefined;
  const isProject = tasks.some(({ service }) => service !== "");
  const open = tasks.filter(({ state }) => state !== "complete");
  const running = open.filter(({ state }) => state === "running").length;
  return { running, wanted: isProject ? open.length : (placement.replicas ?? 1) };
}

/** Of an app that runs in fewer than it is to; nothing for all others. */
export function missingTasks(app: Placed & { readonly state: string }): TaskCount | undefined {
  const count = app.state === "RUNNING" ? taskCount(app) : undefined;
  return count === undefined || count.running >= count.wanted ? undefined : count;
}
