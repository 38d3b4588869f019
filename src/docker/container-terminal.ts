/** Terminals inside of containers: the engine's exec and attach. */
import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import { promisify } from "node:util";
import type { Exec } from "dockerode";
import { SvcError } from "../errors.ts";
import { createProcessOpener } from "../host/pidfd.ts";
import type { Terminal, TerminalPiece, TerminalSize } from "../lib/terminal.ts";
import type { DockerEngine, EngineStream } from "./engine.ts";

export interface ContainerProgram {
  readonly argv: readonly string[];
  /** Of the terminal's window; absent: no terminal, and standard error apart. */
  readonly size?: TerminalSize;
}

/** The engine would keep the keys that it lets go by until it knows the next: these are hardly ever typed. */
const detachKeys = "ctrl-^,ctrl-_,ctrl-^,ctrl-_";
/** End of transmission, ^D: as much of a closed input as a terminal knows. */
const endOfInput = Uint8Array.of(4);

/** @throws SvcError `unavailable`, `not_found`; `failed_precondition` for a container that does not run */
export async function openContainerTerminal(
  engine: DockerEngine,
  containerId: string,
  { argv, size }: ContainerProgram,
): Promise<Terminal> {
  let execId = "";
  const hasTerminal = size !== undefined;
  const opened = await engine.open("open a terminal in a container", async (docker) => {
    const exec = await docker.getContainer(containerId).exec({
      Cmd: [...argv],
      ...(hasTerminal && { Env: ["TERM=xterm-256color"] }),
      Tty: hasTerminal,
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      DetachKeys: detachKeys,
    });
    execId = exec.id;
    return exec.start({ hijack: true, stdin: true, Tty: hasTerminal });
  });
  const terminal = new ExecTerminal(engine, containerId, execId, opened, hasTerminal);
  if (hasTerminal) await terminal.resizeNow(size);
  return terminal;
}

/** The engine's end of a stream to a container. */
abstract class EngineTerminal implements Terminal {
  readonly output: AsyncIterable<TerminalPiece>;
  readonly exitCode: Promise<number>;
  readonly #opened: EngineStream<Duplex>;
  readonly #ended = Promise.withResolvers<undefined>();

  constructor(opened: EngineStream<Duplex>) {
    this.#opened = opened;
    this.output = this.#read();
    this.exitCode = this.#ended.promise.then(() => this.askExitCode());
    this.exitCode.catch(() => undefined);
  }

  protected abstract askExitCode(): Promise<number>;
  protected abstract read(chunks: AsyncIterable<Buffer>): AsyncIterable<TerminalPiece>;
  protected abstract shownBefore(): AsyncIterable<TerminalPiece>;
  abstract endInput(): Promise<void>;
  abstract resize(size: TerminalSize): void;
  abstract [Symbol.asyncDispose](): Promise<void>;

  async *#read(): AsyncGenerator<TerminalPiece, void> {
    try {
      yield* this.shownBefore();
      yield* this.read(this.#opened.chunks);
    } finally {
      this.#ended.resolve(undefined);
    }
  }

  write(bytes: Uint8Array): Promise<void> {
    const { stream } = this.#opened;
    if (!stream.writable) return Promise.resolve();
    return new Promise((resolve) => stream.write(bytes, () => resolve()));
  }

  protected end(): void {
    this.#opened.stream.end();
  }

  protected close(): void {
    this.#opened[Symbol.dispose]();
    this.#ended.resolve(undefined);
  }
}

async function* plain(chunks: AsyncIterable<Buffer>): AsyncGenerator<TerminalPiece, void> {
  for await (const data of chunks) yield { data };
}

/** Of a frame without a terminal: which stream it is of, three bytes, and how long it is. */
const headerBytes = 8;
const errorStream = 2;

async function* apart(chunks: AsyncIterable<Buffer>): AsyncGenerator<TerminalPiece, void> {
  let header = Buffer.alloc(0);
  let leftBytes = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length;) {
      if (leftBytes === 0) {
        const part = chunk.subarray(at, at + headerBytes - header.length);
        header = Buffer.concat([header, part]);
        at += part.length;
        if (header.length < headerBytes) break;
        leftBytes = header.readUInt32BE(4);
        if (leftBytes === 0) header = Buffer.alloc(0);
        continue;
      }
      const data = chunk.subarray(at, at + leftBytes);
      at += data.length;
      leftBytes -= data.length;
      const isError = header[0] === errorStream;
      if (leftBytes === 0) header = Buffer.alloc(0);
      yield { data, isError };
    }
  }
}

class ExecTerminal extends EngineTerminal {
  readonly #engine: DockerEngine;
  readonly #containerId: string;
  readonly #execId: string;
  readonly #hasTerminal: boolean;

  constructor(
    engine: DockerEngine,
    containerId: string,
    execId: string,
    opened: EngineStream<Duplex>,
    hasTerminal: boolean,
  ) {
    super(opened);
    this.#engine = engine;
    this.#containerId = containerId;
    this.#execId = execId;
    this.#hasTerminal = hasTerminal;
  }

  protected read(chunks: AsyncIterable<Buffer>): AsyncIterable<TerminalPiece> {
    return this.#hasTerminal ? plain(chunks) : apart(chunks);
  }

  protected async askExitCode(): Promise<number> {
    return (await this.#inspect()).ExitCode ?? 0;
  }

  protected async *shownBefore(): AsyncGenerator<TerminalPiece, void> {}

  async endInput(): Promise<void> {
    if (this.#hasTerminal) await this.write(endOfInput);
    else this.end();
  }

  resize(size: TerminalSize): void {
    // It may have ended by now.
    void this.resizeNow(size);
  }

  async resizeNow({ columns, rows }: TerminalSize): Promise<void> {
    await this.#engine
      .call("resize a terminal", (docker) => docker.getExec(this.#execId).resize({ w: columns, h: rows }))
      .catch(() => undefined);
  }

  /** The engine leaves what nobody looks at running. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
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

/** The windows in which a container's own terminal is shown: it is as large as the smallest. */
export class WatchedSizes {
  readonly #sizes = new Map<string, Map<object, TerminalSize>>();

  /** @returns how large the terminal is from now on; undefined while nobody says */
  set(containerId: string, watcher: object, size: TerminalSize | undefined): TerminalSize | undefined {
    const sizes = this.#sizes.get(containerId) ?? new Map<object, TerminalSize>();
    if (size === undefined) sizes.delete(watcher);
    else sizes.set(watcher, size);
    if (sizes.size === 0) this.#sizes.delete(containerId);
    else this.#sizes.set(containerId, sizes);
    if (sizes.size === 0) return undefined;
    const all = [...sizes.values()];
    return {
      columns: Math.min(...all.map(({ columns }) => columns)),
      rows: Math.min(...all.map(({ rows }) => rows)),
    };
  }
}

/**
 * Attaches to the terminal that a container itself runs at, its last screen first.
 * @throws SvcError `unavailable`, `not_found`; `failed_precondition` for a container that does not run
 */
export async function attachContainer(
  engine: DockerEngine,
  containerId: string,
  sizes: WatchedSizes,
  size: TerminalSize | undefined,
): Promise<Terminal> {
  const opened = await engine.open("attach to a container", async (docker) => {
    const stream = await promisify(docker.modem.dial.bind(docker.modem))({
      path: `/containers/${containerId}/attach?`,
      method: "POST",
      hijack: true,
      openStdin: true,
      statusCodes: { 200: true },
      // dockerode's own attach sends nothing before something is typed.
      file: Buffer.alloc(0),
      options: { stream: true, stdin: true, stdout: true, stderr: true, detachKeys },
    });
    return stream as Duplex;
  });
  // The engine would wait for the next start of one that has just ended.
  const { State: state } = await engine.call("look at a container", (docker) =>
    docker.getContainer(containerId).inspect(),
  );
  if (!state.Running) {
    opened[Symbol.dispose]();
    throw new SvcError("app_not_running", "its container has just ended");
  }
  const terminal = new AttachedTerminal(engine, containerId, sizes, opened);
  if (size !== undefined) terminal.resize(size);
  return terminal;
}

const screenRows = 50;
const endedWithin = 5_000;

class AttachedTerminal extends EngineTerminal {
  readonly #engine: DockerEngine;
  readonly #id: string;
  readonly #sizes: WatchedSizes;

  constructor(engine: DockerEngine, id: string, sizes: WatchedSizes, opened: EngineStream<Duplex>) {
    super(opened);
    this.#engine = engine;
    this.#id = id;
    this.#sizes = sizes;
  }

  protected read(chunks: AsyncIterable<Buffer>): AsyncIterable<TerminalPiece> {
    return plain(chunks);
  }

  protected async askExitCode(): Promise<number> {
    const ended: unknown = await this.#engine.operate(
      "say how a container ended",
      (docker) => docker.getContainer(this.#id).wait(),
      { timeoutMs: endedWithin },
    );
    return (ended as { StatusCode: number }).StatusCode;
  }

  /** From the log, which a terminal's container has as it was shown. */
  protected async *shownBefore(): AsyncGenerator<TerminalPiece, void> {
    const data = await this.#engine
      .call("read the last screen of a container", async (docker) => {
        const logs = promisify(docker.modem.dial.bind(docker.modem));
        const options = { stdout: true, stderr: true, tail: screenRows };
        const path = `/containers/${this.#id}/logs?`;
        const request = { path, method: "GET", statusCodes: { 200: true }, isStream: true, options };
        return Buffer.concat(await Array.fromAsync((await logs(request)) as AsyncIterable<Buffer>));
      })
      // Of a log driver that cannot be read.
      .catch(() => Buffer.alloc(0));
    if (data.length > 0) yield { data };
  }

  /** Others go on typing, and the app with them. */
  async endInput(): Promise<void> {}

  resize(size: TerminalSize): void {
    this.#fit(this.#sizes.set(this.#id, this, size));
  }

  #fit(size: TerminalSize | undefined): void {
    if (size === undefined) return;
    // It may have ended by now.
    this.#engine
      .call("resize a terminal", (docker) =>
        docker.getContainer(this.#id).resize({ w: size.columns, h: size.rows }),
      )
      .catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    this.#fit(this.#sizes.set(this.#id, this, undefined));
    await Promise.resolve();
  }
}
