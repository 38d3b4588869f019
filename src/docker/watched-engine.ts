/** The engine as everybody asks it: what it does not answer ends as soon as it is found to hang, long before its own deadline. */
import type {
  DockerEngine,
  EngineCallOptions,
  EngineStream,
  EngineWork,
  OperationOptions,
} from "./engine.ts";
import type { EngineEvents } from "./events.ts";

/** Does long work; as {@link DockerEngine.operate}. */
export type EngineOperations = Pick<DockerEngine, "operate">;

/** After so long without an answer to a short question the engine is asked whether it is still there. */
const impatienceMs = 400;

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

  /** Of an engine that hangs it is given up within 3 s. */
  async call<T>(what: string, work: EngineWork<T>, options: EngineCallOptions = {}): Promise<T> {
    return this.#unlessSilent(options, (signal) => this.#engine.call(what, work, { ...options, signal }));
  }

  /** One that hangs already is given up within 3 s, one that does so in the middle when the events are lost. */
  async operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T> {
    await this.#events.verify();
    const lost = new AbortController();
    using _listening = this.#events.listen({ onDisconnect: (error) => lost.abort(error) });
    const signal = eitherOf(options.signal, lost.signal);
    return await this.#engine.operate(what, work, { ...options, signal });
  }

  /** Until it is open, as {@link call}. */
  async open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options: EngineCallOptions = {},
  ): Promise<EngineStream<T>> {
    return this.#unlessSilent(options, (signal) => this.#engine.open(what, work, { ...options, signal }));
  }

  async apiVersion(signal?: AbortSignal): Promise<string> {
    return this.#unlessSilent({ signal }, (either) => this.#engine.apiVersion(either));
  }

  async #unlessSilent<T>(
    { signal }: EngineCallOptions,
    ask: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const silent = new AbortController();
    const timer = setInterval(() => {
      this.#events.verify().catch((error: unknown) => silent.abort(error));
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

function eitherOf(signal: AbortSignal | undefined, other: AbortSignal): AbortSignal {
  return signal === undefined ? other : AbortSignal.any([signal, other]);
}
