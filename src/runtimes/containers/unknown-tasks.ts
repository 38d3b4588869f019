/**
 * Ends containers that still run although their engine considers them ended: the engine was killed before it recorded
 * their start. It can neither start nor stop such a container, because its containerd still runs it. Meanwhile the
 * container keeps its files and its address, which the engine gives to the app's next container, so both answer on
 * it.
 */
import { readdir, readFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { isUpState, namedObject, type ContainerRecord } from "../../engine/container-record.ts";
import type { EngineState } from "../../engine/engine-state.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { createProcessOpener, type ProcessHandle } from "../../sys/pidfd.ts";
import type { Log } from "../../lib/log.ts";

export interface UnknownTasksOptions {
  state: EngineState;
  ownership: EngineOwnership;
  log: Pick<Log, "info" | "warn">;
}

/** Milliseconds between checks after SIGKILL, until containerd has noticed the end. */
const untilEnded = [50, 100, 200, 400, 800, 1600];

/** Runs whenever the engine becomes available, before anybody uses its containers, until it is disposed of. */
export function endUnknownTasks({ state, ownership, log }: UnknownTasksOptions): Disposable {
  const isEnded = (container: ContainerRecord): boolean =>
    !isUpState(container.state) && ownership.ownerOf("container", namedObject(container)) !== undefined;
  return state.beforeAvailable(async (containers) => {
    try {
      const ended = containers.filter(isEnded).map(({ id }) => id);
      if (ended.length === 0) return;
      // The engine does not report a container that is being started until it runs.
      const ids = await endProcesses(ended, async (id) => {
        const container = await state.refreshContainer(id);
        return container !== undefined && isEnded(container);
      });
      if (ids.length > 0) log.info({ ids }, "ended containers that ran unknown to the container engine");
    } catch (error) {
      log.warn({ err: error }, "failed to find containers that run unknown to the container engine");
    }
  });
}

/**
 * @param isEnded the engine's view, read after the processes: containers that start later are not affected
 * @returns the IDs of containers that had processes
 */
async function endProcesses(
  ids: readonly string[],
  isEnded: (id: string) => Promise<boolean>,
): Promise<string[]> {
  const ended: string[] = [];
  for (const [id, pids] of await processesOf(ids)) {
    using opened = new DisposableStack();
    const processes = await openAll(id, pids, opened);
    if (processes.length === 0 || !(await isEnded(id))) continue;
    for (const each of processes) tryTo(() => each.signal(constants.signals.SIGKILL));
    ended.push(id);
  }
  for (const pauseMs of ended.length === 0 ? [] : untilEnded) {
    await wait(pauseMs);
    if ((await processesOf(ended)).size === 0) break;
  }
  return ended;
}

/** Opens process descriptors, which stay valid even if a PID is reused. */
async function openAll(
  id: string,
  pids: readonly number[],
  opened: DisposableStack,
): Promise<ProcessHandle[]> {
  const open = createProcessOpener();
  const processes: ProcessHandle[] = [];
  for (const pid of pids) {
    const handle = tryTo(() => opened.use(open(pid)));
    if (handle !== undefined && (await containerOf(pid)) === id) processes.push(handle);
  }
  return processes;
}

/** Ignores errors: the process has ended, or belongs to another owner. */
function tryTo<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** PIDs by container. */
async function processesOf(ids: readonly string[]): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  for (const pid of (await readdir("/proc")).map(Number)) {
    const id = pid > 0 ? await containerOf(pid) : undefined;
    if (id !== undefined && ids.includes(id)) found.set(id, [...(found.get(id) ?? []), pid]);
  }
  return found;
}

/** Engines put the container's ID into the name of its control group, with either driver. */
async function containerOf(pid: number): Promise<string | undefined> {
  const groups = await readFile(`/proc/${String(pid)}/cgroup`, "utf8").catch(() => "");
  return /[0-9a-f]{64}/.exec(groups)?.[0];
}
