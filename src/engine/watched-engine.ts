/**
 * The engine client that the daemon uses: calls end as soon as the engine is found to hang, long before their own
 * deadline.
 */
import type { Socket } from "node:net";
import type {
  DockerEngine,
  EngineCallOptions,
  EngineStream,
  EngineWork,
  OperationOptions,
} from "./engine.ts";
import type { EngineEvents } from "./events.ts";

/** Long work, as {@link DockerEngine.operate}. */
export type EngineOperations = Pick<DockerEngine, "operate">;

/** A short call without a response for this long causes a check of the engine. */
const impatienceMs = 400;
/**
 * Long work is checked once its connections and the engine's events have been quiet for this long: a loaded engine
 * may be late with a response and still work. For compose only the events count, because it has its own connections.
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

  /** Fails within 2.5 s if the engine hangs. */
  async call<T>(what: string, work: EngineWork<T>, options: EngineCallOptions = {}): Promise<T> {
    return this.#unlessSilent(options, (signal) => this.#engine.call(what, work, { ...options, signal }));
  }

  /** Fails within 2.5 s if the engine hangs; quiet work of a responsive engine continues. */
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

  /** Like {@link call} until the stream is open. */
  async open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options: EngineCallOptions = {},
  ): Promise<EngineStream<T>> {
    return this.#unlessSilent(options, (signal) => this.#engine.open(what, work, { ...options, signal }));
  }

  async ping(options?: EngineCallOptions): Promise<void> {
    await this.#engine.ping(options);
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
      // Each check updates when something last moved.
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

/** Activity on the connections of one piece of work. */
class Traffic {
  readonly #sockets: Socket[] = [];
  #bytes = 0;
  #movedAtMs = performance.now();

  add(socket: Socket): void {
    this.#sockets.push(socket);
  }

  /** Time since the last activity, in milliseconds. */
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
