import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "ava";
import { ContainerPrograms } from "../../src/docker/container-programs.ts";
import { noLog } from "../../src/lib/log.ts";

interface Inspected {
  readonly Running: boolean;
  readonly Pid: number;
  readonly ExitCode: number | null;
}

/** An engine that says `first`, one after the other, and then what is true of the process. */
function programsOf(pid: number, isOver: () => boolean, first: Inspected[]) {
  const written: string[] = [];
  const inspect = (): Promise<Inspected> => {
    const isRunning = !isOver();
    const now = { Running: isRunning, Pid: isRunning ? pid : 0, ExitCode: isRunning ? null : 129 };
    return Promise.resolve(first.shift() ?? now);
  };
  const docker = { getExec: () => ({ inspect }) };
  const programs = new ContainerPrograms({
    engine: { call: (_what: string, work: (engine: typeof docker) => unknown) => work(docker) } as never,
    events: { listen: () => ({ [Symbol.dispose]: () => undefined }) },
    store: {
      all: () => [],
      write: (statements) => {
        written.push(...statements.map(({ sql }) => sql));
        return Promise.resolve([] as never);
      },
    },
    executor: {} as never,
    log: noLog,
  });
  return { programs, written };
}

test("a program that the engine has not started yet, when nobody wants it any more, is ended once it has", async (t) => {
  const child = spawn("sleep", ["1000"], { stdio: "ignore" });
  let isOver = false;
  const closed = once(child, "close").then(() => (isOver = true));
  t.teardown(() => child.kill("SIGKILL"));
  const { programs, written } = programsOf(child.pid ?? 0, () => isOver, [
    { Running: false, Pid: 0, ExitCode: null },
    { Running: true, Pid: 0, ExitCode: null },
  ]);
  // A part of every process's cgroup stands for the container's.
  await programs.end("exec", ":");
  t.true(isOver, "it still runs");
  await closed;
  t.is(child.signalCode, "SIGHUP");
  t.regex(written.join(), /DELETE FROM container_programs/);
});

test("one that has ended is forgotten at once", async (t) => {
  const { programs, written } = programsOf(0, () => true, [{ Running: false, Pid: 0, ExitCode: 127 }]);
  await programs.end("exec", ":");
  t.is(written.length, 1);
});
