/** Terminals of containers' main processes: the engine's attach. */
import type { Duplex } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import { SvcError } from "../errors.ts";
import type { Terminal, TerminalPiece, TerminalSize } from "../lib/terminal.ts";
import { unlessAborted } from "../lib/abort.ts";
import { openLog } from "./container-logs.ts";
import { detachKeys, EngineTerminal } from "./container-terminal.ts";
import type { DockerEngine, EngineStream } from "./engine.ts";
import { WindowSize } from "../lib/window-size.ts";

interface Windows {
  readonly sizes: Map<object, TerminalSize>;
  readonly terminal: WindowSize;
}

/** The windows that show a container's terminal: the terminal gets the size of the smallest. */
export class WatchedSizes {
  readonly #windows = new Map<string, Windows>();

  /** @param size undefined for a client without a window, or one that detached */
  set(
    { engine, containerId }: { engine: DockerEngine; containerId: string },
    watcher: object,
    size: TerminalSize | undefined,
  ): void {
    const windows = this.#windows.get(containerId) ?? {
      sizes: new Map<object, TerminalSize>(),
      terminal: new WindowSize(({ columns, rows }) =>
        engine.call("resize a terminal", (docker) =>
          docker.getContainer(containerId).resize({ w: columns, h: rows }),
        ),
      ),
    };
    const { sizes, terminal } = windows;
    if (size === undefined) sizes.delete(watcher);
    else sizes.set(watcher, size);
    if (sizes.size === 0) {
      this.#windows.delete(containerId);
      return;
    }
    this.#windows.set(containerId, windows);
    const all = [...sizes.values()];
    terminal.set({
      columns: Math.min(...all.map(({ columns }) => columns)),
      rows: Math.min(...all.map(({ rows }) => rows)),
    });
  }
}

/** State shared by all attachments. */
export interface Attachments {
  readonly sizes: WatchedSizes;
  /** Calls back when the container ends, until it is disposed of. */
  readonly onDeath: (containerId: string, callback: () => void) => Disposable;
}

/**
 * Attaches to the terminal of a container's main process; its last screen comes first.
 * @throws SvcError `unavailable`, `not_found`; `failed_precondition` for a container that is not running
 */
export async function attachContainer(
  engine: DockerEngine,
  containerId: string,
  { sizes, onDeath }: Attachments,
  size: TerminalSize | undefined,
): Promise<Terminal> {
  using resources = new DisposableStack();
  const died = new AbortController();
  resources.use(onDeath(containerId, () => died.abort()));
  const attach = async (docker: Dockerode): Promise<Duplex> => {
    const stream = await promisify(docker.modem.dial.bind(docker.modem))({
      path: `/containers/${containerId}/attach?`,
      method: "POST",
      hijack: true,
      openStdin: true,
      statusCodes: { 200: true },
      // dockerode's own attach sends nothing until something is typed.
      file: Buffer.alloc(0),
      options: { stream: true, stdin: true, stdout: true, stderr: true, detachKeys },
    });
    return stream as Duplex;
  };
  const opened = await engine.open("attach to a container", attach);
  // For a container that has just ended, the engine would wait for its next start.
  const { State: state } = await engine.call("inspect a container", (docker) =>
    docker.getContainer(containerId).inspect(),
  );
  if (!state.Running) {
    opened[Symbol.dispose]();
    throw new SvcError("app_not_running", "the container has just exited");
  }
  const attached = { engine, containerId, sizes, died: died.signal, listening: resources.move() };
  const terminal = new AttachedTerminal(opened, attached);
  if (size !== undefined) terminal.resize(size);
  return terminal;
}

const screenRows = 50;
const endedWithin = 5_000;
/**
 * Silence after the container's end that counts as the stream's end: the engine may never end a stream that was
 * opened as the container ended.
 */
const silenceMs = 1_000;

interface Attached {
  readonly engine: DockerEngine;
  readonly containerId: string;
  readonly sizes: WatchedSizes;
  /** Aborts when the container ends. */
  readonly died: AbortSignal;
  readonly listening: Disposable;
}

class AttachedTerminal extends EngineTerminal {
  readonly #of: Attached;

  constructor(opened: EngineStream<Duplex>, of: Attached) {
    super(opened);
    this.#of = of;
  }

  protected async *read(chunks: AsyncIterable<Buffer>): AsyncGenerator<TerminalPiece, void> {
    yield* this.#lastScreen();
    const iterator = chunks[Symbol.asyncIterator]();
    for (;;) {
      const next = await this.#beforeSilence(iterator.next());
      if (next === undefined || next.done === true) return;
      yield { data: next.value };
    }
  }

  async #beforeSilence<T>(next: Promise<T>): Promise<T | undefined> {
    const { died } = this.#of;
    try {
      return await unlessAborted(next, died);
    } catch (error) {
      if (!died.aborted) throw error;
      return Promise.race([next, wait(silenceMs, undefined)]);
    }
  }

  protected async askExitCode(): Promise<number> {
    const { engine, containerId } = this.#of;
    const ended: unknown = await engine.operate(
      "read the exit code of a container",
      (docker) => docker.getContainer(containerId).wait(),
      { timeoutMs: endedWithin },
    );
    return (ended as { StatusCode: number }).StatusCode;
  }

  /** From the log, which for a container with a terminal holds the output as shown. */
  async *#lastScreen(): AsyncGenerator<TerminalPiece, void> {
    const { engine, containerId } = this.#of;
    const data = await engine
      .call("read the last screen of a container", async (docker) => {
        const options = { stdout: true, stderr: true, tail: screenRows };
        return Buffer.concat(await Array.fromAsync(await openLog(docker, containerId, options)));
      })
      // The log driver may not support reading.
      .catch(() => Buffer.alloc(0));
    if (data.length > 0) yield { data };
  }

  /** Does nothing: other clients, and the app, go on using the terminal. */
  async endInput(): Promise<void> {}

  /** @param size undefined once the client detached */
  resize(size: TerminalSize | undefined): void {
    this.#of.sizes.set(this.#of, this, size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#of.listening[Symbol.dispose]();
    this.close();
    this.resize(undefined);
    await Promise.resolve();
  }
}
