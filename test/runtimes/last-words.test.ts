/** An app's last output reaches its log, however slow the disk is, and whichever process keeps its pipes open. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { loadPipeEnds } from "../../src/sys/pipe-ends.mjs";
import { startApp } from "../../src/runtimes/process/app-process.mjs";
import { AppTerminal } from "../../src/runtimes/process/app-terminal.mjs";
import type { LogWriter } from "../../src/runtimes/process/log-writer.mjs";
import type { SupervisorSpec } from "../../src/runtimes/process/supervisor-types.ts";

const quietMs = 300;

/** In a run directory, which is the working directory of a supervisor. */
async function inRunDirectory(t: ExecutionContext): Promise<void> {
  const [before, directory] = [process.cwd(), await mkdtemp(join(tmpdir(), "svc-words-"))];
  process.chdir(directory);
  t.teardown(async () => {
    process.chdir(before);
    await rm(directory, { recursive: true });
  });
}

class SlowLog {
  readonly #writeMs: number;
  text = "";

  constructor(writeMs: number) {
    this.#writeMs = writeMs;
  }

  async write(_source: string, chunk: Buffer): Promise<void> {
    const text = chunk.toString();
    await wait(this.#writeMs);
    this.text += text;
  }

  async finishLine(): Promise<void> {
    await Promise.resolve();
  }
}

const specOf = (command: string): SupervisorSpec =>
  ({
    argv: ["/bin/sh", "-c", command],
    env: { PATH: process.env["PATH"] },
    cwd: "/",
    runId: "words",
    cgroup: null,
    limits: {},
  }) as unknown as SupervisorSpec;

for (const hasTerminal of [false, true]) {
  const where = hasTerminal ? "at a terminal" : "to pipes";

  test.serial(`the last output ${where} is not lost on a slow disk`, async (t) => {
    await inRunDirectory(t);
    const slow = new SlowLog(3 * quietMs);
    const log = slow as unknown as LogWriter;
    const terminal = hasTerminal ? new AppTerminal(log) : undefined;
    const app = startApp(specOf("seq 40000; echo the last words"), log, terminal ?? loadPipeEnds());
    t.like(await app.exited, { code: 0 });
    await app.drain(quietMs);
    terminal?.ended(0);
    const expected = [...Array.from({ length: 40_000 }, (_, at) => String(at + 1)), "the last words", ""];
    t.is(slow.text, expected.join("\n"));
  });

  for (const [how, printer] of [
    ["all the time", "exec yes"],
    ["now and then", "while echo x; do sleep 0.1; done"],
  ] as const) {
    test.serial(
      `a process that survives an app and prints ${how} ${where} does not delay the app's exit`,
      async (t) => {
        await inRunDirectory(t);
        const log = new SlowLog(0) as unknown as LogWriter;
        const terminal = hasTerminal ? new AppTerminal(log) : undefined;
        const command = `trap '' HUP; (${printer}) & (sleep 0.1; echo x) & sleep 0.2`;
        const app = startApp(specOf(command), log, terminal ?? loadPipeEnds());
        await app.exited;
        await app.drain(quietMs);
        terminal?.ended(0);
        t.pass();
      },
    );
  }
}
