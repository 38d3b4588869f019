/** How far output may run ahead of a client that acknowledges what it has shown. */
const windowBytes = 128 * 1024;

export class OutputWindow {
  #sentBytes = 0;
  /** Infinity until the first acknowledgement: until then only the transport limits the output. */
  #limitBytes = Infinity;
  #opened = Promise.withResolvers<undefined>();
  #isSuspended = false;

  /** The client has shown this many bytes since the start of the session. */
  acknowledge(bytes: number): void {
    const shown = Math.min(bytes, this.#sentBytes);
    this.#limitBytes = Math.max(this.#limitBytes === Infinity ? 0 : this.#limitBytes, shown + windowBytes);
    if (this.#isOpen) this.#opened.resolve(undefined);
  }

  /** Counts sent bytes; resolves, usually at once, when more may be sent. */
  async countSent(bytes: number): Promise<void> {
    this.#sentBytes += bytes;
    while (!this.#isOpen) {
      this.#opened = Promise.withResolvers();
      await this.#opened.promise;
    }
  }

  /**
   * Suspends the window while `work` runs: acknowledgements arrive behind the client's input, and a program may not
   * read more input before its output is read.
   */
  async openFor(work: Promise<void>): Promise<void> {
    this.#isSuspended = true;
    this.#opened.resolve(undefined);
    try {
      await work;
    } finally {
      this.#isSuspended = false;
    }
  }

  get #isOpen(): boolean {
    return this.#isSuspended || this.#sentBytes < this.#limitBytes;
  }
}
