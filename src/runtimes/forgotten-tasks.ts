/**
 * Containers that run on while their engine takes them for ended: it was killed before it had written down that they began.
 * It can neither start nor stop such a one from then on, as its containerd still runs it, until its processes have ended.
 */
import { readdir, readFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { createProcessOpener } from "../host/pidfd.ts";

/** From SIGKILL on, until containerd has heard of it too; in milliseconds between two looks. */
const untilEnded = [50, 100, 200, 400, 800, 1600];

/** Whether a container could not be started as it runs already, of which the engine does not know; in containerd's words. */
export function isForgottenTask(error: unknown): boolean {
  return error instanceof SvcError && /\bid already in use\b/.test(error.message);
}

/**
 * Ends all processes of containers, of which the caller knows that the engine takes them for ended.
 * @param ids whole ones
 * @returns whether there were any
 */
export async function endForgottenTasks(ids: readonly string[]): Promise<boolean> {
  const pids = await processesOf(ids);
  const open = createProcessOpener();
  for (const pid of pids) {
    try {
      using handle = open(pid);
      // The pid may be somebody else's since it was found; what has been opened stays the same.
      if (await isIn(ids, pid)) handle.signal(constants.signals.SIGKILL);
    } catch {
      // It has ended, or is not ours to end.
    }
  }
  for (const pauseMs of pids.length === 0 ? [] : untilEnded) {
    await wait(pauseMs);
    if ((await processesOf(ids)).length === 0) break;
  }
  return pids.length > 0;
}

async function processesOf(ids: readonly string[]): Promise<number[]> {
  const pids: number[] = [];
  for (const pid of (await readdir("/proc")).map(Number)) {
    if (pid > 0 && (await isIn(ids, pid))) pids.push(pid);
  }
  return pids;
}

/** Engines name a container's control group after it, with either driver. */
async function isIn(ids: readonly string[], pid: number): Promise<boolean> {
  const groups = await readFile(`/proc/${String(pid)}/cgroup`, "utf8").catch(() => "");
  return ids.some((id) => groups.includes(id));
}
