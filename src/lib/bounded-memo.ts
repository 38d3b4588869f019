/** Remembers what was made for a key. When it knows as many as it may it forgets them all: that costs time, nothing else. */
export class BoundedMemo<K, V> {
  readonly #known = new Map<K, V>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  /** @param make is asked once for what is remembered, and each time for what it answers with `undefined` */
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
