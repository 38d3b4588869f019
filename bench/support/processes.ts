/** Running programs and reading their memory. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

const commandTimeoutMs = 10 * 60_000;

/** Runs a program to its end and returns its output. @throws Error unless it exits with 0. */
export async function runProgram(program: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(program, args, {
    maxBuffer: 64 * 1024 * 1024,
    timeout: commandTimeoutMs,
  });
  return stdout;
}

/** The start of Node itself, the lower limit of any program in it. */
export function runBareNode(): Promise<string> {
  return runProgram(process.execPath, "-e", "0");
}

/** CPU time of this process's exited children in milliseconds, in steps of 10. */
export async function childProcessorMs(): Promise<number> {
  const stat = await readFile("/proc/self/stat", "utf8");
  // Fields 16 and 17, in hundredths of a second (proc_pid_stat(5)); the name may have spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

/** Memory of a process in MiB: its proportional share (PSS), and all of its resident memory (RSS). */
export async function memoryMib(pid: number): Promise<{ pss: number; rss: number }> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, "utf8");
  const kib = (key: string) => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(rollup)?.[1] ?? NaN);
  return { pss: kib("Pss") / 1024, rss: kib("Rss") / 1024 };
}

/** Memory of an idle Node, in MiB. */
export async function bareNodeMemoryMib(): Promise<{ pss: number; rss: number }> {
  const node = spawn(process.execPath, ["-e", "console.log(); setInterval(() => {}, 1e6)"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    await once(node.stdout, "data");
    return await memoryMib(node.pid ?? 0);
  } finally {
    node.kill();
    await once(node, "exit");
  }
}
