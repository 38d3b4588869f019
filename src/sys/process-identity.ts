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
