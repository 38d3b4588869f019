/** Processes of apps, found independently of the code under test. */
import assert from "node:assert/strict";
import { readdirSync, readlinkSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { eventually } from "./eventually.ts";

/**
 * Living processes whose working directory is inside `dir`: supervisors and their children. Called often; synchronous
 * because /proc does not block.
 */
export function processesIn(dir: string): number[] {
  return processesInEach([dir]).flat();
}

/** The same for several directories, with one scan of all processes. */
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

/**
 * Waits until no process of `dir` is left, or none of `pids` among them: a process exits a moment after its last
 * output.
 */
export async function untilNoneLeft(dir: string, timeoutMs: number, pids?: readonly number[]): Promise<void> {
  await eventually(async () => {
    const left = processesIn(dir).filter((pid) => pids?.includes(pid) ?? true);
    assert.deepEqual(await Promise.all(left.map(commandOf)), []);
  }, timeoutMs);
}

async function commandOf(pid: number): Promise<string> {
  const command = await readFile(`/proc/${String(pid)}/cmdline`, "utf8").catch(() => "");
  return `${String(pid)} ${command.replaceAll("\0", " ")}`;
}

/** An exited process is skipped. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has ended.
  }
}
