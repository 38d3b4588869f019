/** Processes of apps, found without asking what is under test. */
import assert from "node:assert/strict";
import { readdirSync, readlinkSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { eventually } from "./eventually.ts";

/** Living processes whose working directory is inside `dir`: supervisors and what they run. Asked often, and the kernel need not wait. */
export function processesIn(dir: string): number[] {
  return processesInEach([dir]).flat();
}

/** The same of several, for one look at all processes of the host. */
export function processesInEach(dirs: readonly string[]): number[][] {
  const found = dirs.map((): number[] => []);
  for (const pid of readdirSync("/proc").map(Number).filter(Number.isInteger)) {
    const directory = directoryOf(pid);
    found[dirs.findIndex((dir) => directory.startsWith(`${dir}/`))]?.push(pid);
  }
  return found;
}

function directoryOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return "";
  }
}

/** Waits until none of `dir` is left, or none of `pids` among them: who has said its last word takes a moment to end. */
export async function noneLeft(dir: string, timeoutMs: number, pids?: readonly number[]): Promise<void> {
  await eventually(async () => {
    const left = processesIn(dir).filter((pid) => pids?.includes(pid) ?? true);
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
