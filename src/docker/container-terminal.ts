/** Programs at terminals inside of containers: the engine's exec. */
import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import type { Exec } from "dockerode";
import { createProcessOpener } from "../host/pidfd.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";
import type { DockerEngine, EngineStream } from "./engine.ts";

export interface ContainerProgram {
  readonly argv: readonly string[];
  readonly size: TerminalSize;
}

/** @throws SvcError `unavailable`, `not_found`; `failed_precondition` for a container that does not run */
export async function openContainerTerminal(
  engine: DockerEngine,
  containerId: string,
  { argv, size }: ContainerProgram,
): Promise<Terminal> {
  let execId = "";
  const opened = await engine.open("open a terminal in a container", async (docker) => {
    const exec = await docker.getContainer(containerId).exec({
      Cmd: [...argv],
      Env: ["TERM=xterm-256color"],
      Tty: true,
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
    });
    execId = exec.id;
    return exec.start({ hijack: true, stdin: true, Tty: true });
  });
  const terminal = new ExecTerminal(engine, containerId, execId, opened);
  await terminal.resizeNow(size);
  return terminal;
}

class ExecTerminal implements Terminal {
  readonly output: AsyncIterable<Buffer>;
  readonly exitCode: Promise<number>;
  readonly #engine: DockerEngine;
  readonly #containerId: string;
  readonly #execId: string;
  readonly #opened: EngineStream<Duplex>;
  readonly #ended = Promise.withResolvers<undefined>();

  constructor(engine: DockerEngine, containerId: string, execId: string, opened: EngineStream<Duplex>) {
    this.#engine = engine;
    this.#containerId = containerId;
    this.#execId = execId;
    this.#opened = opened;
    this.output = this.#read();
    this.exitCode = this.#ended.promise.then(async () => (await this.#inspect()).ExitCode ?? 0);
    this.exitCode.catch(() => undefined);
  }

  async *#read(): AsyncGenerator<Buffer, void> {
    try {
      yield* this.#opened.chunks;
    } finally {
      this.#ended.resolve(undefined);
    }
  }

  write(bytes: Uint8Array): Promise<void> {
    const { stream } = this.#opened;
    if (!stream.writable) return Promise.resolve();
    return new Promise((resolve) => stream.write(bytes, () => resolve()));
  }

  resize(size: TerminalSize): void {
    // It may have ended by now.
    this.resizeNow(size).catch(() => undefined);
  }

  async resizeNow({ columns, rows }: TerminalSize): Promise<void> {
    await this.#engine
      .call("resize a terminal", (docker) => docker.getExec(this.#execId).resize({ w: columns, h: rows }))
      .catch(() => undefined);
  }

  /** The engine leaves what nobody looks at running. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#opened[Symbol.dispose]();
    this.#ended.resolve(undefined);
    const { Running, Pid } = await this.#inspect().catch(() => ({ Running: false, Pid: 0 }));
    if (Running && Pid > 0) await hangUp(Pid, this.#containerId);
  }

  async #inspect(): Promise<Awaited<ReturnType<Exec["inspect"]>>> {
    return this.#engine.call("look at a terminal", (docker) => docker.getExec(this.#execId).inspect());
  }
}

/** As a closed window would. The pid is of the engine's host, which is this one where its cgroup says so. */
async function hangUp(pid: number, containerId: string): Promise<void> {
  try {
    using handle = createProcessOpener()(pid);
    const cgroup = await readFile(`/proc/${pid}/cgroup`, "utf8");
    if (!cgroup.includes(containerId)) return;
    handle.signal(constants.signals.SIGHUP);
    handle.signal(constants.signals.SIGCONT);
  } catch {
    // It has ended.
  }
}
