/**
 * In a pid namespace of its own, where the next pid may be chosen (`ns_last_pid`): a process ends, another one gets its pid,
 * and whoever means the first signals it: a caller who knows when it started; one who does not, while the daemon looks at
 * it; the end of an app, which looked at it before. Prints what came of it as JSON.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { SvcError } from "../../../src/errors.ts";
import { ProcessSignals } from "../../../src/host/process-signals.ts";
import { readProcess } from "../../../src/lib/process-table.mjs";
import { sendSignal } from "../../../src/runtimes/process/ending.mjs";

const attempts = Number(process.argv[2]);
/** What happens after the process was looked at and before it is signalled. */
const meanwhile: { act?: () => void } = {};
const signals = new ProcessSignals({
  selfPid: -1,
  supervisors: () => {
    meanwhile.act?.();
    return [];
  },
});
const outcomes: Record<string, Record<string, number>> = { known: {}, unknown: {}, ending: {} };

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

/** One that gets the pid, and is not taken for the first by when it started. */
async function startAs(pid: number, otherThan: number): Promise<ChildProcess> {
  let child = start(pid);
  // The kernel counts starts in hundredths of a second: one that began in the same is another case.
  while (child.pid !== pid || ticksOf(child) === otherThan) {
    await end(child);
    child = start(pid);
  }
  return child;
}

function thrownBy(send: () => void): string {
  try {
    send();
    return "sent";
  } catch (error) {
    return String(error instanceof SvcError ? error.reason : error);
  }
}

function isOver({ pid = 0, exitCode, signalCode }: ChildProcess): boolean {
  const { state } = readProcess(pid) ?? {};
  return exitCode !== null || signalCode !== null || state === undefined || state === "Z";
}

const count = (form: string, outcome: string): void => {
  const counted = outcomes[form]!;
  counted[outcome] = (counted[outcome] ?? 0) + 1;
};

/** The child of a shell, which reaps it, and forks nothing else, while this program is in the middle of something. */
async function startElsewhere(): Promise<{ parent: ChildProcess; pid: number }> {
  const parent = spawn("sh", ["-c", "sleep 600 & echo $!; wait; read -r _"], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  return { parent, pid: Number(line.toString()) };
}

/** @returns whether another process got the pid between the look and the signal */
async function signalMeanwhile(): Promise<boolean> {
  const elsewhere = await startElsewhere();
  let other: ChildProcess | undefined;
  meanwhile.act = () => {
    process.kill(elsewhere.pid, "SIGKILL");
    while (readProcess(elsewhere.pid) !== undefined);
    other = start(elsewhere.pid);
  };
  const said = thrownBy(() => signals.send({ pid: elsewhere.pid, signal: "kill" }));
  delete meanwhile.act;
  // The kernel gives a pid back a moment after nobody sees it any more, and threads take some, too.
  const isMet = other?.pid === elsewhere.pid;
  if (isMet) count("unknown", isOver(other!) ? "hit" : said);
  if (other !== undefined) await end(other);
  await end(elsewhere.parent);
  return isMet;
}

for (let done = 0; done < attempts; done++) {
  const first = start();
  const { pid = 0 } = first;
  const entry = readProcess(pid)!;
  const expectedStartTicks = entry.startTicks;
  await end(first);
  const second = await startAs(pid, expectedStartTicks);
  sendSignal(entry, "SIGKILL");
  count("ending", isOver(second) ? "hit" : "spared");
  const known = thrownBy(() => signals.send({ pid, signal: "kill", expectedStartTicks }));
  count("known", isOver(second) ? "hit" : known);
  // The same one, meant, is hit.
  signals.send({ pid, signal: "kill", expectedStartTicks: ticksOf(second) });
  await end(second);

  while (!(await signalMeanwhile()));
}
process.stdout.write(JSON.stringify(outcomes));
