import { readFile } from "node:fs/promises";
import { isDead, parseStat } from "./process-table.mjs";

/** Identifies a process, even if its PID is reused in the same boot. */
export interface ProcessIdentity {
  pid: number;
  /** Start time in clock ticks since boot (proc_pid_stat(5), field 22). */
  startTicks: number;
}

/** Identifies the process that has `pid` now. Returns undefined for an unused PID or a zombie. */
export async function readProcessIdentity(pid: number): Promise<ProcessIdentity | undefined> {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ESRCH: it exited between open and read.
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
  const entry = parseStat(stat);
  return isDead(entry) ? undefined : { pid, startTicks: entry.startTicks };
}

/** The kernel's ID of this boot: a UUID that changes with each reboot (random(4), `/proc/sys/kernel/random/boot_id`). */
export async function readBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}

/** The boot time of the host in unix milliseconds (proc_stat(5), `btime`: whole seconds). */
export async function readBootTimeMs(): Promise<number> {
  const seconds = /^btime (\d+)$/m.exec(await readFile("/proc/stat", "latin1"))?.[1];
  if (seconds === undefined) throw new Error("/proc/stat has no boot time");
  return Number(seconds) * 1000;
}
