/** Runs programs at terminals in containers: the engine's exec. */
import type { Duplex } from "node:stream";
import type Dockerode from "dockerode";
import type { Terminal, TerminalPiece, TerminalSize } from "../lib/terminal.ts";
import type { ContainerPrograms } from "./container-programs.ts";
import type { DockerEngine, EngineStream } from "./engine.ts";
import { WindowSize } from "../lib/window-size.ts";

export interface ContainerProgram {
  readonly argv: readonly string[];
  /** Size of the terminal window; absent: no terminal, and a separate standard error. */
  readonly size?: TerminalSize;
}

/**
 * The engine holds back the first key of a detach sequence until it sees the next: use keys that are hardly ever
 * typed.
 */
export const detachKeys = "ctrl-^,ctrl-_,ctrl-^,ctrl-_";
/** ^D: the closest to an end of input that a terminal has. */
const endOfInput = Uint8Array.of(4);

/** @throws SvcError `unavailable`, `not_found`; `failed_precondition` for a container that is not running */
export async function openContainerTerminal(
  engine: DockerEngine,
  containerId: string,
  { argv, size }: ContainerProgram,
  programs: ContainerPrograms,
): Promise<Terminal> {
  let execId = "";
  const hasTerminal = size !== undefined;
  const open = async (docker: Dockerode): Promise<Duplex> => {
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
    await programs.begin(execId, containerId);
    return exec.start({ hijack: true, stdin: true, Tty: hasTerminal });
  };
  const opened = await engine.open("open a terminal in a container", open);
  const terminal = new ExecTerminal(opened, { engine, programs, containerId, execId, hasTerminal });
  if (hasTerminal) terminal.resize(size);
  return terminal;
}

/** A stream to a container. */
export abstract class EngineTerminal implements Terminal {
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
  abstract endInput(): Promise<void>;
  abstract resize(size: TerminalSize): void;
  abstract [Symbol.asyncDispose](): Promise<void>;

  async *#read(): AsyncGenerator<TerminalPiece, void> {
    try {
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

/** Frame header of a stream without a terminal: the stream's number, three zero bytes, and the length. */
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

interface Executed {
  readonly engine: DockerEngine;
  readonly programs: ContainerPrograms;
  readonly containerId: string;
  readonly execId: string;
  readonly hasTerminal: boolean;
}

class ExecTerminal extends EngineTerminal {
  readonly #of: Executed;
  readonly #window: WindowSize;

  constructor(opened: EngineStream<Duplex>, of: Executed) {
    super(opened);
    this.#of = of;
    this.#window = new WindowSize(({ columns, rows }) =>
      of.engine.call("resize a terminal", (docker) =>
        docker.getExec(of.execId).resize({ w: columns, h: rows }),
      ),
    );
  }

  protected read(chunks: AsyncIterable<Buffer>): AsyncIterable<TerminalPiece> {
    return this.#of.hasTerminal ? plain(chunks) : apart(chunks);
  }

  protected async askExitCode(): Promise<number> {
    return (await this.#of.programs.inspect(this.#of.execId)).ExitCode ?? 0;
  }

  async endInput(): Promise<void> {
    if (this.#of.hasTerminal) await this.write(endOfInput);
    else this.end();
  }

  resize(size: TerminalSize): void {
    this.#window.set(size);
  }

  /** Ends the program, because the engine would leave it running. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    await this.#of.programs.end(this.#of.execId, this.#of.containerId);
  }
}
