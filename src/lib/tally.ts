/** Counts by key; a key with count 0 is removed. */
export class Tally<K> {
  readonly #counts = new Map<K, number>();

  of(key: K): number {
    return this.#counts.get(key) ?? 0;
  }

  /** @returns the new count of the key */
  change(key: K, by: number): number {
    const count = this.of(key) + by;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
    return count;
  }
}
