/**
 * Containers that run on while their engine takes them for ended: it was killed before it had written down that they began.
 * It can neither start nor stop such a one from then on, as its containerd still runs it, until its processes have ended.
 * Until then it keeps its files and its address, which the engine gives to the next container of the app: both answer for it.
 */
import { readdir, readFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { storeLabel } from "../docker/attribution.ts";
import { isUpState, type ContainerRecord } from "../docker/container-record.ts";
import type { EngineState } from "../docker/engine-state.ts";
import { createProcessOpener, type ProcessHandle } from "../host/pidfd.ts";
import type { Log } from "../lib/log.ts";

export interface ForgottenTasksOptions {
  state: EngineState;
  storeId: string;
  log: Pick<Log, "info" | "warn">;
}

/** From SIGKILL on, until containerd has heard of it too; in milliseconds between two looks. */
const untilEnded = [50, 100, 200, 400, 800, 1600];

/** Whenever the engine is there anew, before anybody hears of its containers, until it is disposed of. */
export function endForgottenTasks({ state, storeId, log }: ForgottenTasksOptions): Disposable {
  const isEnded = ({ labels, state }: ContainerRecord): boolean =>
    labels[storeLabel] === storeId && !isUpState(state);
  return state.beforeAvailable(async (containers) => {
    try {
      const ended = containers.filter(isEnded).map(({ id }) => id);
      if (ended.length === 0) return;
      // Of one that is being started the engine does not tell until it runs.
      const ids = await endProcesses(ended, async (id) => {
        const container = await state.refreshContainer(id);
        return container !== undefined && isEnded(container);
      });
      if (ids.length > 0)
        log.info({ ids }, "containers were ended that ran on unknown to the container engine");
    } catch (error) {
      log.warn({ err: error }, "it is not known whether containers run on unknown to the container engine");
    }
  });
}

/**
 * @param isEnded what the engine says, asked once the processes are known: what begins later is left alone
 * @returns the ids of those that had some
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

/** The pid may be somebody else's since it was found; what has been opened stays the same. */
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

/** What fails has ended, or is not ours to end. */
function tryTo<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** Their pids, by container. */
async function processesOf(ids: readonly string[]): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  for (const pid of (await readdir("/proc")).map(Number)) {
    const id = pid > 0 ? await containerOf(pid) : undefined;
    if (id !== undefined && ids.includes(id)) found.set(id, [...(found.get(id) ?? []), pid]);
  }
  return found;
}

/** Engines name a container's control group after it, with either driver. */
async function containerOf(pid: number): Promise<string | undefined> {
  const groups = await readFile(`/proc/${String(pid)}/cgroup`, "utf8").catch(() => "");
  return /[0-9a-f]{64}/.exec(groups)?.[0];
}
