/** Counts by key; keys at nothing are forgotten. */
export class Tally<K> {
  readonly #counts = new Map<K, number>();

  of(key: K): number {
    return this.#counts.get(key) ?? 0;
  }

  /** @returns the count of the key from now on */
  change(key: K, by: 1 | -1): number {
    const count = this.of(key) + by;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
    return count;
  }
}
