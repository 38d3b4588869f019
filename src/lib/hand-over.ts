/**
 * Pieces of bytes from one who has them to one who asks for them, one at a time: each is lent until the next is asked for, and
 * who gave it knows by then that its memory is free again.
 */
export class HandOver implements AsyncIterable<Buffer> {
  #given: { piece: Buffer; taken: PromiseWithResolvers<undefined> } | undefined;
  #news = Promise.withResolvers<undefined>();
  #isOver = false;
  #isLeft = false;
  #failure: Error | undefined;

  /** Resolves when it is not looked at any more. @throws Error when nobody asks for more, who may look at it yet */
  async give(piece: Buffer): Promise<void> {
    if (this.#isLeft) throw nobodyTakes();
    const taken = Promise.withResolvers<undefined>();
    this.#given = { piece, taken };
    this.#news.resolve(undefined);
    await taken.promise;
  }

  end(): void {
    this.#isOver = true;
    this.#news.resolve(undefined);
  }

  /** @param failure what whoever asks is told in place of more */
  fail(failure: Error): void {
    this.#failure = failure;
    this.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void> {
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure;
        const given = this.#given;
        if (given !== undefined) {
          yield given.piece;
          this.#given = undefined;
          given.taken.resolve(undefined);
        } else if (this.#isOver) return;
        else {
          this.#news = Promise.withResolvers();
          await this.#news.promise;
        }
      }
    } finally {
      this.#isLeft = true;
      this.#given?.taken.reject(nobodyTakes());
    }
  }
}

function nobodyTakes(): Error {
  return new Error("nobody takes it any more");
}
