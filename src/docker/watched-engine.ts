/** The engine as everybody asks it: what it does not answer ends as soon as it is found to hang, long before its own deadline. */
import type { Socket } from "node:net";
import type {
  DockerEngine,
  EngineCallOptions,
  LaneOptions,
  EngineStream,
  EngineWork,
  OperationOptions,
} from "./engine.ts";
import type { EngineEvents } from "./events.ts";

/** Does long work; as {@link DockerEngine.operate}. */
export type EngineOperations = Pick<DockerEngine, "operate">;

/** After so long without an answer to a short question the engine is asked whether it is still there. */
const impatienceMs = 400;
/**
 * Long work goes by what the engine answers once nothing of it has moved and no event has come for so long: a loaded engine may owe an
 * answer and yet do it. Of what compose does the events alone tell, as it has connections of its own.
 */
const quietMs = 2_000;

export class WatchedEngine implements DockerEngine {
  readonly #engine: DockerEngine;
  readonly #events: EngineEvents;

  constructor(engine: DockerEngine, events: EngineEvents) {
    this.#engine = engine;
    this.#events = events;
  }

  get socket(): string {
    return this.#engine.socket;
  }

  /** Of an engine that hangs it is given up within 2.5 s. */
  async call<T>(what: string, work: EngineWork<T>, options: EngineCallOptions = {}): Promise<T> {
    return this.#unlessSilent(options, (signal) => this.#engine.call(what, work, { ...options, signal }));
  }

  /** Of an engine that hangs, or begins to, it is given up within 2.5 s; silent work of one that answers goes on. */
  async operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T> {
    await this.#events.verify();
    const traffic = new Traffic();
    const onSocket = (socket: Socket): void => traffic.add(socket);
    return this.#unlessSilent(
      options,
      (signal) => this.#engine.operate(what, work, { ...options, signal, onSocket }),
      () => traffic.quietForMs() < quietMs || this.#events.silentMs < quietMs,
    );
  }

  /** Until it is open, as {@link call}. */
  async open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options: LaneOptions = {},
  ): Promise<EngineStream<T>> {
    return this.#unlessSilent(options, (signal) => this.#engine.open(what, work, { ...options, signal }));
  }

  async apiVersion(signal?: AbortSignal): Promise<string> {
    return this.#unlessSilent({ signal }, (either) => this.#engine.apiVersion(either));
  }

  async #unlessSilent<T>(
    { signal }: EngineCallOptions,
    ask: (signal: AbortSignal) => Promise<T>,
    isAlive: () => boolean = () => false,
  ): Promise<T> {
    const silent = new AbortController();
    const timer = setInterval(() => {
      // Each look tells when something last moved.
      isAlive();
      this.#events.verify(impatienceMs).catch((error: unknown) => {
        if (!isAlive()) silent.abort(error);
      });
    }, impatienceMs);
    try {
      return await ask(eitherOf(signal, silent.signal));
    } finally {
      clearInterval(timer);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#engine[Symbol.asyncDispose]();
  }
}

/** What moves on the connections of a piece of work. */
class Traffic {
  readonly #sockets: Socket[] = [];
  #bytes = 0;
  #movedAtMs = performance.now();

  add(socket: Socket): void {
    this.#sockets.push(socket);
  }

  /** Since something was last seen to have moved, in milliseconds. */
  quietForMs(): number {
    const bytes = this.#sockets.reduce(
      (sum, { bytesRead, bytesWritten }) => sum + bytesRead + bytesWritten,
      0,
    );
    const nowMs = performance.now();
    if (bytes !== this.#bytes) this.#movedAtMs = nowMs;
    this.#bytes = bytes;
    return nowMs - this.#movedAtMs;
  }
}

function eitherOf(signal: AbortSignal | undefined, other: AbortSignal): AbortSignal {
  return signal === undefined ? other : AbortSignal.any([signal, other]);
}
