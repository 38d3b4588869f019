/** Processes of apps, found without asking what is under test. */
import assert from "node:assert/strict";
import { readFile, readdir, readlink } from "node:fs/promises";
import { eventually } from "./eventually.ts";

/** Living processes whose working directory is inside `dir`: supervisors and what they run. */
export async function processesIn(dir: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of (await readdir("/proc")).map(Number).filter(Number.isInteger)) {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => "");
    if (cwd.startsWith(`${dir}/`)) found.push(pid);
  }
  return found;
}

/** Waits until none of `dir` is left, or none of `pids` among them: who has said its last word takes a moment to end. */
export async function noneLeft(dir: string, timeoutMs: number, pids?: readonly number[]): Promise<void> {
  await eventually(async () => {
    const left = (await processesIn(dir)).filter((pid) => pids?.includes(pid) ?? true);
    assert.deepEqual(await Promise.all(left.map(commandOf)), []);
  }, timeoutMs);
}

async function commandOf(pid: number): Promise<string> {
  const command = await readFile(`/proc/${String(pid)}/cmdline`, "utf8").catch(() => "");
  return `${String(pid)} ${command.replaceAll("\0", " ")}`;
}

/** One that has ended is passed over. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}
