import { readFile } from "node:fs/promises";
import { isDead, parseStat } from "./process-table.mjs";

/** A process, told apart from every later one that gets the same pid in the same boot. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, in clock ticks since boot (proc_pid_stat(5), field 22). */
  startTicks: number;
}

/**
 * The identity of the process that has `pid` now; undefined when there is none, or only its zombie, which executes
 * nothing any more.
 */
export async function readProcessIdentity(pid: number): Promise<ProcessIdentity | undefined> {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ESRCH: it ended between open and read.
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
  const entry = parseStat(stat);
  return isDead(entry) ? undefined : { pid, startTicks: entry.startTicks };
}
