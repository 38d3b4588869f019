/** Counts the running tasks of an app on a swarm. */

export interface TaskCount {
  readonly running: number;
  readonly desired: number;
}

interface PlacedApp {
  readonly placement?: { readonly replicas?: number | undefined } | undefined;
  readonly tasks: readonly { readonly service: string; readonly state: string }[];
}

/** Undefined for an app on this host. Tasks of a project that have completed are not counted as missing. */
export function taskCount({ placement, tasks }: PlacedApp): TaskCount | undefined {
  if (placement === undefined) return undefined;
  const isProject = tasks.some(({ service }) => service !== "");
  const open = tasks.filter(({ state }) => state !== "complete");
  const running = open.filter(({ state }) => state === "running").length;
  return { running, desired: isProject ? open.length : (placement.replicas ?? 1) };
}

/** For an app with fewer tasks than desired; undefined for all others. */
export function missingTasks(app: PlacedApp & { readonly state: string }): TaskCount | undefined {
  const count = app.state === "RUNNING" ? taskCount(app) : undefined;
  return count === undefined || count.running >= count.desired ? undefined : count;
}
