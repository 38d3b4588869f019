/**
 * Limits of the processes and threads of one user, so that others can still start processes. The kernel counts them by
 * uid (RLIMIT_NPROC, getrlimit(2)).
 */
import { readFile } from "node:fs/promises";

/** The largest limit of processes. */
export const maxProcesses = 65_536;
/** Processes beyond the limit of containers: a user whose containers have reached it can still stop them. */
const beyondContainers = 1_024;

/** The limit in all containers together: a quarter of the kernel's limit. */
export async function readMaxUserProcesses(): Promise<number> {
  const limits = await Promise.all(
    ["threads-max", "pid_max"].map(async (name) => {
      const text = await readFile(`/proc/sys/kernel/${name}`, "latin1").catch(() => "");
      return /^\d+\s*$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY;
    }),
  );
  return Math.min(maxProcesses, Math.floor(Math.min(...limits) / 4));
}

/** The limit outside of containers, which also counts those in containers; at most the soft limit of this process. */
export async function readMaxHostProcesses(): Promise<number> {
  const text = await readFile("/proc/self/limits", "latin1").catch(() => "");
  const own = Number(/^Max processes +(\d+)/m.exec(text)?.[1] ?? Number.POSITIVE_INFINITY);
  return Math.min(own, (await readMaxUserProcesses()) + beyondContainers);
}
