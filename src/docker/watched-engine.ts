/** Work that may take minutes ends as soon as the engine is found to hang, long before its own deadline. */
import type { DockerEngine, EngineWork, OperationOptions } from "./engine.ts";
import type { EngineEvents } from "./events.ts";

/** Does long work; as {@link DockerEngine.operate}. */
export type EngineOperations = Pick<DockerEngine, "operate">;

export class WatchedEngine implements EngineOperations {
  readonly #engine: DockerEngine;
  readonly #events: EngineEvents;

  constructor(engine: DockerEngine, events: EngineEvents) {
    this.#engine = engine;
    this.#events = events;
  }

  async operate<T>(what: string, work: EngineWork<T>, { timeoutMs, signal }: OperationOptions): Promise<T> {
    await this.#events.verify();
    const lost = new AbortController();
    using _listening = this.#events.listen({ onDisconnect: (error) => lost.abort(error) });
    const signals = signal === undefined ? [lost.signal] : [lost.signal, signal];
    return await this.#engine.operate(what, work, { timeoutMs, signal: AbortSignal.any(signals) });
  }
}
