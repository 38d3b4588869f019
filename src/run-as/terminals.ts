/** Programs of consoles. Each is a separate process that runs as its user; see `terminal-parent.sh`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, fchownSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { retainInheritedDescriptors, loadPipes } from "../sys/pipe.ts";
import { type Pty, loadPtys } from "../sys/pty.mjs";
import type { Terminal, TerminalPiece, TerminalSize } from "../lib/terminal.ts";
import type { ExpectedCredentials } from "./helper/verify.mjs";
import type { Launch } from "./launch.ts";
import { statusLines } from "./status-lines.ts";

export interface TerminalProgram {
  /** The program, searched in PATH, and its arguments. */
  readonly argv: readonly string[];
  /** Absolute; entered as the user. */
  readonly cwd: string;
  /** Added to the clean base environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Size of the terminal's window; without it, the program gets pipes instead of a terminal. */
  readonly size?: TerminalSize;
}

/**
 * Milliseconds without output after which the output of an exited program is complete. Other processes may still hold
 * the terminal open.
 */
const drainMs = 300;
/** Milliseconds from release to SIGKILL by the daemon itself; the guard is faster. */
const letGoMs = 4_000;

/** The daemon's ends of a program's input and output. */
interface Ends extends Disposable {
  /** Become the program's descriptors 0, 1 and 2. */
  readonly fds: readonly [number, number, number];
  /** Empty without a terminal. */
  readonly terminalPath: string;
  readonly pieces: AsyncIterable<TerminalPiece>;
  /** Called when the program has started with its own copies of the descriptors. */
  started(): void;
  /** Called when the program has exited. */
  ended(): void;
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  endInput(signal: AbortSignal): Promise<void>;
  resize(size: TerminalSize): void;
}

interface Calls {
  readonly openPty: ReturnType<typeof loadPtys>;
  readonly openPipe: ReturnType<typeof loadPipes>;
}

export class Terminals {
  readonly #parentPath: string;
  #calls: Calls | undefined;

  /** @param parentPath of `terminal-parent.sh`, readable by every user */
  constructor(parentPath: string) {
    this.#parentPath = parentPath;
  }

  /**
   * @param launch returns how to start a program as the user
   * @throws SvcError `unavailable` if the program cannot be started
   */
  async open(
    expected: ExpectedCredentials,
    { argv, cwd, env, size }: TerminalProgram,
    launch: (argv: readonly string[]) => Promise<Launch>,
  ): Promise<Terminal> {
    this.#calls ??= prepare();
    const ends =
      size === undefined
        ? new PipeEnds(this.#calls.openPipe, expected)
        : new PtyEnds(this.#calls.openPty(expected, size));
    try {
      const parent = ["/bin/sh", this.#parentPath, ...statusLines(expected), "."];
      const program = await launch([...parent, ends.terminalPath, cwd, ...argv]);
      const child = spawn(program.command, program.args, {
        cwd: "/",
        env: program.env,
        // Errors before the program runs go there, too.
        stdio: [...ends.fds, "pipe", "pipe"],
        detached: true,
      });
      await once(child, "spawn");
      ends.started();
      const [variables, life] = child.stdio.slice(3) as [Writable, Writable];
      for (const pipe of [variables, life]) pipe.on("error", () => undefined);
      variables.end(exports(env));
      return new ProgramTerminal(ends, child, life);
    } catch (cause) {
      ends[Symbol.dispose]();
      if (cause instanceof SvcError) throw cause;
      throw new SvcError("unavailable", `a terminal could not be opened: ${String(cause)}`, {
        cause,
      });
    }
  }
}

function prepare(): Calls {
  retainInheritedDescriptors();
  return { openPty: loadPtys(), openPipe: loadPipes() };
}

/** Shell commands that export the variables. */
function exports(env: Readonly<Record<string, string>>): string {
  const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  return Object.entries(env)
    .filter(([name]) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
    .map(([name, value]) => `export ${name}=${quoted(value)}\n`)
    .join("");
}

/** End of transmission (^D): the terminal's only way to signal end of input. */
const endOfInput = Uint8Array.of(4);

class PtyEnds implements Ends {
  readonly fds: readonly [number, number, number];
  readonly terminalPath: string;
  readonly pieces: AsyncIterable<TerminalPiece>;
  readonly #pty: Pty;

  constructor(pty: Pty) {
    this.#pty = pty;
    this.fds = [pty.farFd, pty.farFd, pty.farFd];
    this.terminalPath = pty.path;
    this.pieces = shown(pty.read());
  }

  started(): void {
    // Keeps its end open: a program that closes its own ends first, as cat does, would get SIGHUP while it exits.
  }

  ended(): void {
    this.#pty.closeFar();
  }

  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#pty.write(bytes, signal);
  }

  endInput(signal: AbortSignal): Promise<void> {
    return this.write(endOfInput, signal);
  }

  resize(size: TerminalSize): void {
    this.#pty.resize(size);
  }

  [Symbol.dispose](): void {
    this.#pty[Symbol.dispose]();
  }
}

class PipeEnds implements Ends {
  readonly fds: readonly [number, number, number];
  readonly terminalPath = "";
  readonly pieces: AsyncIterable<TerminalPiece>;
  readonly #input: Writable;
  readonly #outputs: readonly Readable[];
  #areChildEndsOpen = true;

  constructor(openPipe: ReturnType<typeof loadPipes>, { uid, gid }: ExpectedCredentials) {
    const [input, out, error] = [openPipe("write"), openPipe("read"), openPipe("read")];
    this.fds = [input.fd, out.fd, error.fd];
    // The user who owns the pipes can open them again as `/dev/stdout`.
    for (const fd of this.fds) fchownSync(fd, uid, gid);
    this.#input = input.stream;
    this.#outputs = [out.stream, error.stream];
    for (const stream of [this.#input, ...this.#outputs]) stream.on("error", () => undefined);
    this.pieces = inArrivalOrder([shown(out.stream), shown(error.stream, true)]);
  }

  started(): void {
    if (this.#areChildEndsOpen) for (const fd of this.fds) closeSync(fd);
    this.#areChildEndsOpen = false;
  }

  ended(): void {
    this.#input.destroy();
  }

  /** Input that the program has closed discards everything, as a shell's pipe does. */
  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (!this.#input.writable || signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const done = (): void => resolve(undefined);
    signal.addEventListener("abort", done, { once: true });
    this.#input.write(bytes, done);
    await promise;
    signal.removeEventListener("abort", done);
  }

  async endInput(): Promise<void> {
    this.#input.end();
    await Promise.resolve();
  }

  resize(): void {
    // A pipe has no window.
  }

  [Symbol.dispose](): void {
    this.started();
    for (const stream of [this.#input, ...this.#outputs]) stream.destroy();
  }
}

async function* shown(source: AsyncIterable<Buffer>, isError = false): AsyncGenerator<TerminalPiece, void> {
  try {
    for await (const data of source) yield { data, ...(isError && { isError }) };
  } catch (error) {
    // The daemon closed the pipe itself: that is an end, not an error.
    if ((error as NodeJS.ErrnoException).code !== "ERR_STREAM_PREMATURE_CLOSE") throw error;
  }
}

/** Merges several sources in order of arrival, without starving any of them. */
async function* inArrivalOrder<T>(sources: readonly AsyncIterable<T>[]): AsyncGenerator<T, void> {
  type Next = Promise<{ iterator: AsyncIterator<T>; result: IteratorResult<T, unknown> }>;
  const ask = async (iterator: AsyncIterator<T>): Next => ({ iterator, result: await iterator.next() });
  const waiting = new Map<AsyncIterator<T>, Next>();
  for (const source of sources) {
    const iterator = source[Symbol.asyncIterator]();
    waiting.set(iterator, ask(iterator));
  }
  while (waiting.size > 0) {
    const { iterator, result } = await Promise.race(waiting.values());
    waiting.delete(iterator);
    if (result.done === true) continue;
    waiting.set(iterator, ask(iterator));
    yield result.value;
  }
}

class ProgramTerminal implements Terminal {
  readonly output: AsyncIterable<TerminalPiece>;
  readonly exitCode: Promise<number>;
  readonly #ends: Ends;
  readonly #child: ChildProcess;
  readonly #parentPipe: Writable;
  readonly #exited = new AbortController();
  #pieces = 0;
  #isReading = false;
  #isOver = false;

  /** @param life pipe to the parent process: closing it ends the program; a line reports that the program has exited */
  constructor(ends: Ends, child: ChildProcess, life: Writable) {
    this.#ends = ends;
    this.#child = child;
    this.#parentPipe = life;
    this.output = this.#read();
    this.exitCode = once(child, "exit").then(async ([code, signal]) => {
      this.#exited.abort();
      life.end("ended\n");
      ends.ended();
      await this.#untilOutputRead();
      ends[Symbol.dispose]();
      return (code as number | null) ?? 128 + constants.signals[signal as NodeJS.Signals];
    });
  }

  async *#read(): AsyncGenerator<TerminalPiece, void> {
    const pieces = this.#ends.pieces[Symbol.asyncIterator]();
    try {
      for (;;) {
        this.#isReading = true;
        const next = await pieces.next();
        this.#isReading = false;
        this.#pieces++;
        if (next.done === true) return;
        yield next.value;
      }
    } finally {
      this.#isOver = true;
    }
  }

  /** Resolves when all output has been read, however slowly. */
  async #untilOutputRead(): Promise<void> {
    for (let seen = -1; !this.#isOver && !(this.#isReading && seen === this.#pieces);) {
      seen = this.#pieces;
      await wait(drainMs);
    }
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#ends.write(bytes, this.#exited.signal);
  }

  endInput(): Promise<void> {
    return this.#ends.endInput(this.#exited.signal);
  }

  resize(size: TerminalSize): void {
    this.#ends.resize(size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#exited.abort();
    this.#isOver = true;
    this.#parentPipe.destroy();
    this.#ends[Symbol.dispose]();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), letGoMs);
    await this.exitCode;
    clearTimeout(timer);
  }
}
