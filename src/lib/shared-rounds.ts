import { unlessAborted } from "./unless-aborted.ts";

/**
 * What a round does for the questions of all who wait for it.
 * @param signal aborts when nobody waits any more; the next round begins once the work has settled, so it must not
 * settle while something of it goes on
 */
export type RoundWork<Q, A> = (questions: readonly Q[], signal: AbortSignal) => Promise<A>;

interface Round<Q, A> {
  /** A seat for each who waits, with what they ask. */
  seats: Set<{ question: Q }>;
  controller: AbortController;
  answer: Promise<A>;
}

/** Expensive work, done in rounds: one at a time, and each for all who came since the one before it began. */
export class SharedRounds<Q, A> {
  readonly #work: RoundWork<Q, A>;
  /** Resolves after the last round that is planned. */
  #over: Promise<unknown> = Promise.resolve();
  /** The round that has not begun yet: there is never more than one. */
  #next: Round<Q, A> | undefined;

  constructor(work: RoundWork<Q, A>) {
    this.#work = work;
  }

  /**
   * Takes part in the next round, which begins at once unless one is under way.
   * @throws what the work throws; the signal's reason, at once
   */
  async join(question: Q, signal?: AbortSignal): Promise<A> {
    signal?.throwIfAborted();
    const round = (this.#next ??= this.#plan());
    const seat = { question };
    round.seats.add(seat);
    try {
      return await (signal ? unlessAborted(round.answer, signal) : round.answer);
    } finally {
      round.seats.delete(seat);
      // One that has not begun may still be joined.
      if (round !== this.#next) abortIfEmpty(round);
    }
  }

  #plan(): Round<Q, A> {
    const { promise: answer, resolve } = Promise.withResolvers<A>();
    const round = { seats: new Set<{ question: Q }>(), controller: new AbortController(), answer };
    void this.#over.then(() => resolve(this.#begin(round)));
    // Those who wait hear of an error, if any are left.
    this.#over = answer.catch(() => undefined);
    return round;
  }

  async #begin(round: Round<Q, A>): Promise<A> {
    const { seats, controller } = round;
    this.#next = undefined;
    abortIfEmpty(round);
    controller.signal.throwIfAborted();
    return this.#work(
      Array.from(seats, ({ question }) => question),
      controller.signal,
    );
  }
}

function abortIfEmpty({ seats, controller }: Round<unknown, unknown>): void {
  if (seats.size === 0) controller.abort();
}
