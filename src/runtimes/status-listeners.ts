/** Who hears that the status of some app of a runtime is another one. */
export class StatusListeners {
  readonly #listeners = new Set<(id: string) => void>();
  #revision = 0;

  /** How often {@link changed} was called. */
  get revision(): number {
    return this.#revision;
  }

  listen(listener: (id: string) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** An app came, went, or has another status. */
  changed(): void {
    this.#revision++;
  }

  tell(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }
}
