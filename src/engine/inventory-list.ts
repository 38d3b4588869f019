/** A cached list of engine objects, loaded again after an event or after a second. */
import { onShareOf, rootShare } from "../lib/share-owner.ts";
import { CoalescedRequests } from "../lib/coalesced-requests.ts";

export interface InventoryList<T> {
  /** Changes exactly when the items change. */
  readonly revision: number;
  readonly items: readonly T[];
}

export interface InventoryListOptions<T> {
  load: () => Promise<T[]>;
  /** Returns the next revision. */
  nextRevision: () => number;
  /** Milliseconds after which the list is loaded again, because some changes cause no event. */
  maxAgeMs: number;
}

export class CachedInventory<T> {
  readonly #options: InventoryListOptions<T>;
  #list: InventoryList<T> | undefined;
  #text = "";
  #loadedAtMs = -Infinity;
  /**
   * Callers that arrive during a load share the next one: there is one load at a time, however many events arrive.
   */
  readonly #loads = new CoalescedRequests<undefined, InventoryList<T>>(() => this.#loadUnlessFresh());
  #changes = 0;

  constructor(options: InventoryListOptions<T>) {
    this.#options = options;
  }

  /** The list, at most a second old. @throws what `load` throws */
  async read(): Promise<InventoryList<T>> {
    return this.#fresh() ?? this.#loads.request(undefined);
  }

  #fresh(): InventoryList<T> | undefined {
    const ageMs = performance.now() - this.#loadedAtMs;
    return ageMs < this.#options.maxAgeMs ? this.#list : undefined;
  }

  /** Marks the list as stale. */
  invalidate(): void {
    this.#changes++;
    this.#loadedAtMs = -Infinity;
  }

  async #loadUnlessFresh(): Promise<InventoryList<T>> {
    const fresh = this.#fresh();
    if (fresh !== undefined) return fresh;
    const changes = this.#changes;
    const startedAtMs = performance.now();
    // All users wait for the result, so it must not use the slots of the first caller.
    const items = await onShareOf(rootShare, this.#options.load);
    const text = JSON.stringify(items);
    if (this.#list === undefined || text !== this.#text) {
      this.#text = text;
      this.#list = { revision: this.#options.nextRevision(), items };
    }
    if (changes === this.#changes) this.#loadedAtMs = startedAtMs;
    return this.#list;
  }
}
