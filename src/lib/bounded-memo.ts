/** Caches computed values by key. When the cache is full it is cleared, which costs only time. */
export class BoundedMemo<K, V> {
  readonly #known = new Map<K, V>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  /** @param make called once per cached key, and each time for a key whose value is `undefined` */
  get(key: K, make: (key: K) => V): V {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const made = make(key);
    if (made === undefined) return made;
    if (this.#known.size >= this.#max) this.#known.clear();
    this.#known.set(key, made);
    return made;
  }
}
