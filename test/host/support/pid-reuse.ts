/**
 * In a pid namespace of its own, where the next pid may be chosen (`ns_last_pid`): a process ends, another one gets its pid,
 * and whoever means the first signals it. Prints what came of it as JSON.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { SvcError } from "../../../src/errors.ts";
import { ProcessSignals } from "../../../src/host/process-signals.ts";
import { readProcess } from "../../../src/lib/process-table.mjs";

const attempts = Number(process.argv[2]);
const signals = new ProcessSignals({ selfPid: -1, supervisors: () => [] });
const outcomes: Record<string, number> = {};

function start(after?: number): ChildProcess {
  if (after !== undefined) writeFileSync("/proc/sys/kernel/ns_last_pid", String(after - 1));
  return spawn("sleep", ["600"], { stdio: "ignore" });
}

async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

function ticksOf({ pid = 0 }: ChildProcess): number {
  return readProcess(pid)?.startTicks ?? 0;
}

for (let done = 0; done < attempts;) {
  const first = start();
  const { pid = 0 } = first;
  const expectedStartTicks = ticksOf(first);
  await end(first);
  let second = start(pid);
  // The kernel counts starts in hundredths of a second: one that began in the same is another case.
  while (second.pid !== pid || ticksOf(second) === expectedStartTicks) {
    await end(second);
    second = start(pid);
  }
  let outcome = "hit";
  try {
    signals.send({ pid, signal: "kill", expectedStartTicks });
  } catch (error) {
    outcome = error instanceof SvcError ? error.reason : String(error);
  }
  const { state } = readProcess(pid) ?? {};
  if (second.exitCode !== null || second.signalCode !== null || state === undefined || state === "Z")
    outcome = "hit";
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  // The same one, meant, is hit.
  signals.send({ pid, signal: "kill", expectedStartTicks: ticksOf(second) });
  await end(second);
  done++;
}
process.stdout.write(JSON.stringify(outcomes));
