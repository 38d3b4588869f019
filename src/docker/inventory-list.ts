/** A list of the engine's that is asked for again when something happened to it, or when it is more than a second old. */

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
  #loading: { changes: number; done: Promise<InventoryList<T>> } | undefined;
  #changes = 0;

  constructor(options: InventoryListOptions<T>) {
    this.#options = options;
  }

  /** The list as it was when this was called, or a second ago at most. @throws what `load` throws */
  async read(): Promise<InventoryList<T>> {
    const list = this.#list;
    if (list !== undefined && performance.now() - this.#loadedAtMs < this.#options.maxAgeMs) return list;
    const { changes, done } = this.#load();
    const loaded = await done;
    // Somebody else's question may be older than the last change before this call.
    return changes === this.#changes ? loaded : await this.#load().done;
  }

  /** Something happened to it. */
  invalidate(): void {
    this.#changes++;
    this.#loadedAtMs = -Infinity;
  }

  #load(): { changes: number; done: Promise<InventoryList<T>> } {
    if (this.#loading?.changes === this.#changes) return this.#loading;
    const loading = { changes: this.#changes, done: this.#loadOnce(this.#changes) };
    this.#loading = loading;
    const forget = (): void => {
      if (this.#loading === loading) this.#loading = undefined;
    };
    loading.done.then(forget, forget);
    return loading;
  }

  async #loadOnce(changes: number): Promise<InventoryList<T>> {
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
