/** A list of the engine's that is asked for again when something happened to it, or when it is more than a second old. */
import { SharedRounds } from "../lib/shared-rounds.ts";

export interface InventoryList<T> {
  /** Another number whenever the items are other ones, and only then. */
  readonly revision: number;
  readonly items: readonly T[];
}

export interface InventoryListOptions<T> {
  load: () => Promise<T[]>;
  /** The next revision. */
  nextRevision: () => number;
  /** Not everything that changes a list is told as an event. In milliseconds. */
  maxAgeMs: number;
}

export class CachedInventory<T> {
  readonly #options: InventoryListOptions<T>;
  #list: InventoryList<T> | undefined;
  #text = "";
  #loadedAtMs = -Infinity;
  /** Whoever comes while it is asked for shares the next answer: however much happens, there is one question at a time. */
  readonly #rounds = new SharedRounds<undefined, InventoryList<T>>(() => this.#loadUnlessFresh());
  #changes = 0;

  constructor(options: InventoryListOptions<T>) {
    this.#options = options;
  }

  /** The list as it was when this was called, or a second ago at most. @throws what `load` throws */
  async read(): Promise<InventoryList<T>> {
    return this.#fresh() ?? this.#rounds.join(undefined);
  }

  #fresh(): InventoryList<T> | undefined {
    const ageMs = performance.now() - this.#loadedAtMs;
    return ageMs < this.#options.maxAgeMs ? this.#list : undefined;
  }

  /** Something happened to it. */
  invalidate(): void {
    this.#changes++;
    this.#loadedAtMs = -Infinity;
  }

  async #loadUnlessFresh(): Promise<InventoryList<T>> {
    const fresh = this.#fresh();
    if (fresh !== undefined) return fresh;
    const changes = this.#changes;
    const startedAtMs = performance.now();
    const items = await this.#options.load();
    const text = JSON.stringify(items);
    if (this.#list === undefined || text !== this.#text) {
      this.#text = text;
      this.#list = { revision: this.#options.nextRevision(), items };
    }
    if (changes === this.#changes) this.#loadedAtMs = startedAtMs;
    return this.#list;
  }
}
