/** How far output may run ahead of a client that says what it has shown. */
const windowBytes = 128 * 1024;

export class OutputWindow {
  #sentBytes = 0;
  /** Infinity while the client has not said anything: what carries the bytes holds them back then. */
  #limitBytes = Infinity;
  #room = Promise.withResolvers<undefined>();
  #isOpen = false;

  /** The client has shown so many bytes since the beginning. */
  acknowledge(bytes: number): void {
    const shown = Math.min(bytes, this.#sentBytes);
    this.#limitBytes = Math.max(this.#limitBytes === Infinity ? 0 : this.#limitBytes, shown + windowBytes);
    if (this.#hasRoom) this.#room.resolve(undefined);
  }

  /** Counts bytes that go out; resolves, at once as a rule, when the next ones may. */
  async sent(bytes: number): Promise<void> {
    this.#sentBytes += bytes;
    while (!this.#hasRoom) {
      this.#room = Promise.withResolvers();
      await this.#room.promise;
    }
  }

  /**
   * Holds nothing back while `work` waits: what the client has shown may be said behind what it types, and a program may take
   * no more of that before what it prints is taken.
   */
  async openFor(work: Promise<void>): Promise<void> {
    this.#isOpen = true;
    this.#room.resolve(undefined);
    try {
      await work;
    } finally {
      this.#isOpen = false;
    }
  }

  get #hasRoom(): boolean {
    return this.#isOpen || this.#sentBytes < this.#limitBytes;
  }
}
