/** Processes of apps, found without asking what is under test. */
import { readdir, readlink } from "node:fs/promises";

/** Living processes whose working directory is inside `dir`: supervisors and what they run. */
export async function processesIn(dir: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of (await readdir("/proc")).map(Number).filter(Number.isInteger)) {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => "");
    if (cwd.startsWith(`${dir}/`)) found.push(pid);
  }
  return found;
}

/** One that has ended is passed over. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}
