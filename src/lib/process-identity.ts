import { readFile } from "node:fs/promises";

/** A process, told apart from every later one that gets the same pid in the same boot. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, in clock ticks since boot (proc_pid_stat(5), field 22). */
  startTicks: number;
}

/**
 * The identity of the process that has `pid` now; undefined when there is none, or only its zombie, which executes
 * nothing any more.
 *
 * @param procDir where procfs is mounted
 */
export async function readProcessIdentity(
  pid: number,
  procDir = "/proc",
): Promise<ProcessIdentity | undefined> {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  let stat: string;
  try {
    stat = await readFile(`${procDir}/${pid}/stat`, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ESRCH: it ended between open and read.
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
  const { state, startTicks } = parseProcessStat(stat);
  return state === "Z" || state === "X" ? undefined : { pid, startTicks };
}

/** The state letter and the start time in a line of `/proc/<pid>/stat`. */
export function parseProcessStat(stat: string): { state: string; startTicks: number } {
  // Field 2 is the program's own name in parentheses and may itself hold spaces and parentheses: count after its end.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, startTicks] = [fields[0], Number(fields[22 - 3])];
  if (state === undefined || !Number.isSafeInteger(startTicks)) {
    throw new Error(`"${stat.trim()}" is not a line of /proc/<pid>/stat`);
  }
  return { state, startTicks };
}
