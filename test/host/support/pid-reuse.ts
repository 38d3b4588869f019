/**
 * In a PID namespace, where the next PID can be set (`ns_last_pid`): a process exits, another one gets its PID, and a
 * caller signals the first: a caller who knows its start time; one who does not, while the daemon reads it; the stop of
 * an app, which read it before. Prints the results as JSON.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { SvcError } from "../../../src/errors.ts";
import { ProcessSignals } from "../../../src/host/processes/process-signals.ts";
import { readProcess } from "../../../src/sys/process-table.mjs";
import { sendSignal } from "../../../src/runtimes/process/ending.mjs";
import { nextEvent } from "../../support/eventually.ts";

const attempts = Number(process.argv[2]);
/** Runs after the process was read and before it is signaled. */
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

/** A process that gets the PID, with a different start time. */
async function startAs(pid: number, otherThan: number): Promise<ChildProcess> {
  let child = start(pid);
  // The kernel counts starts in hundredths of a second: one that started in the same is another case.
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
  const [line] = (await nextEvent(parent.stdout, "data")) as [Buffer];
  return { parent, pid: Number(line.toString()) };
}

/** @returns whether another process got the PID between the read and the signal */
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
  // The kernel frees a PID a moment after its last use, and threads use some, too.
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
  // The intended process itself is signaled.
  signals.send({ pid, signal: "kill", expectedStartTicks: ticksOf(second) });
  await end(second);

  while (!(await signalMeanwhile()));
}
process.stdout.write(JSON.stringify(outcomes));
