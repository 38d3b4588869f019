/** How much may go on at once, and how much may wait. */
import { SvcError } from "../errors.ts";

export class Lane {
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor({ running, waiting }: { running: number; waiting: number }) {
    this.#maxRunning = running;
    this.#maxWaiting = waiting;
  }

  get isEmpty(): boolean {
    return this.#running === 0 && this.#waiting.size === 0;
  }

  /**
   * Waits for a turn; dispose of it when done.
   * @throws SvcError `resource_exhausted` when too many wait already; the signal's reason when it fires first
   */
  async enter(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted();
    if (this.#running < this.#maxRunning) this.#running++;
    else await this.#wait(signal);
    return { [Symbol.dispose]: () => this.#leave() };
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (this.#waiting.size >= this.#maxWaiting) {
      throw new SvcError(
        "too_many",
        `the container engine has ${this.#running} requests of svc to answer already; try again in a moment`,
      );
    }
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const proceed = (): void => resolve(undefined);
    const giveUp = (): void => {
      // A turn that was given at the same moment is kept, and given back by its holder.
      if (this.#waiting.delete(proceed)) reject(signal.reason as Error);
    };
    this.#waiting.add(proceed);
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#running--;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}

/** A lane of all, and one of each who is named, which is there while there is something in it: nobody fills that of others. */
export class Lanes {
  readonly #ofAll: Lane;
  readonly #own: ConstructorParameters<typeof Lane>[0];
  readonly #lanes = new Map<string, Lane>();

  constructor(ofAll: ConstructorParameters<typeof Lane>[0], own: ConstructorParameters<typeof Lane>[0]) {
    this.#ofAll = new Lane(ofAll);
    this.#own = own;
  }

  /** @throws SvcError as {@link Lane.enter} */
  async enter(of: string | undefined, signal: AbortSignal): Promise<Disposable> {
    if (of === undefined) return this.#ofAll.enter(signal);
    const lane = this.#lanes.get(of) ?? new Lane(this.#own);
    this.#lanes.set(of, lane);
    using forget = new DisposableStack();
    forget.defer(() => {
      if (lane.isEmpty) this.#lanes.delete(of);
    });
    forget.use(await lane.enter(signal));
    return forget.move();
  }
}
