/**
 * Passes byte pieces from a producer to a consumer, one at a time. A piece is valid until the consumer requests the
 * next one; the producer is then notified that its memory is free.
 */
export class PieceChannel implements AsyncIterable<Buffer> {
  #pending: { piece: Buffer; consumed: PromiseWithResolvers<undefined> } | undefined;
  #changed = Promise.withResolvers<undefined>();
  #isEnded = false;
  #isAbandoned = false;
  #failure: Error | undefined;

  /** Resolves when the piece is no longer used. @throws Error if the consumer has stopped; it may still use the piece */
  async send(piece: Buffer): Promise<void> {
    if (this.#isAbandoned) throw consumerStopped();
    const consumed = Promise.withResolvers<undefined>();
    this.#pending = { piece, consumed };
    this.#changed.resolve(undefined);
    await consumed.promise;
  }

  end(): void {
    this.#isEnded = true;
    this.#changed.resolve(undefined);
  }

  /** @param failure thrown to the consumer instead of further pieces */
  fail(failure: Error): void {
    this.#failure = failure;
    this.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void> {
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure;
        const pending = this.#pending;
        if (pending !== undefined) {
          yield pending.piece;
          this.#pending = undefined;
          pending.consumed.resolve(undefined);
        } else if (this.#isEnded) return;
        else {
          this.#changed = Promise.withResolvers();
          await this.#changed.promise;
        }
      }
    } finally {
      this.#isAbandoned = true;
      this.#pending?.consumed.reject(consumerStopped());
    }
  }
}

function consumerStopped(): Error {
  return new Error("the consumer has stopped");
}
