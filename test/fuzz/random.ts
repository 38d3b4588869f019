/** Reproducible random numbers: the same seed returns the same requests (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to 1, without 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** An integer from 0 to `below` - 1. */
  integer(below: number): number {
    return Math.floor(this.next() * below);
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.integer(times) === 0;
  }

  pick<T>(choices: readonly [T, ...T[]] | readonly T[]): T {
    const choice = choices[this.integer(choices.length)];
    if (choice === undefined) throw new Error("there is nothing to choose from");
    return choice;
  }

  bytes(maxLength: number): Buffer {
    return Buffer.from(Array.from({ length: this.integer(maxLength + 1) }, () => this.integer(256)));
  }
}
