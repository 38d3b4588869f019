/** A collaborator that is registered once, by a part that is created after the part that uses it. */
export class SetOnce<T> {
  readonly #name: string;
  #value: T | undefined;

  /** @param name for the error of a use before the registration */
  constructor(name: string) {
    this.#name = name;
  }

  /** @throws Error the second time */
  set(value: T): void {
    if (this.#value !== undefined) throw new Error(`${this.#name} is registered already`);
    this.#value = value;
  }

  /** @throws Error before the registration */
  get(): T {
    if (this.#value === undefined) throw new Error(`${this.#name} is not registered yet`);
    return this.#value;
  }
}
