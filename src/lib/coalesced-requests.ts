import { unlessAborted } from "./abort.ts";

/**
 * Serves a batch of requests.
 * @param signal aborts when no requester is left. The next batch starts when the work has settled, so it must
 * not settle while part of it still runs
 */
export type BatchWork<Q, A> = (all: readonly Q[], signal: AbortSignal) => Promise<A>;

interface Batch<Q, A> {
  /** One entry per requester. */
  requests: Set<{ request: Q }>;
  controller: AbortController;
  result: Promise<A>;
}

/**
 * Coalesces requests for expensive work into batches. One batch runs at a time, and serves all requests that
 * arrived since the previous one started.
 */
export class CoalescedRequests<Q, A> {
  readonly #work: BatchWork<Q, A>;
  /** Resolves after the last planned batch. */
  #previous: Promise<unknown> = Promise.resolve();
  /** The batch that has not started yet; at most one. */
  #next: Batch<Q, A> | undefined;

  constructor(work: BatchWork<Q, A>) {
    this.#work = work;
  }

  /**
   * Adds a request to the next batch, which starts at once unless one is running.
   * @throws the error of the work; the signal's reason, at once
   */
  async request(request: Q, signal?: AbortSignal): Promise<A> {
    signal?.throwIfAborted();
    const batch = (this.#next ??= this.#plan());
    const entry = { request };
    batch.requests.add(entry);
    try {
      return await (signal ? unlessAborted(batch.result, signal) : batch.result);
    } finally {
      batch.requests.delete(entry);
      // A batch that has not started can still get requests.
      if (batch !== this.#next) abortIfEmpty(batch);
    }
  }

  #plan(): Batch<Q, A> {
    const { promise: result, resolve } = Promise.withResolvers<A>();
    const batch = { requests: new Set<{ request: Q }>(), controller: new AbortController(), result };
    void this.#previous.then(() => resolve(this.#start(batch)));
    // Requesters get the error, if any are left.
    this.#previous = result.catch(() => undefined);
    return batch;
  }

  async #start(batch: Batch<Q, A>): Promise<A> {
    const { requests, controller } = batch;
    this.#next = undefined;
    abortIfEmpty(batch);
    controller.signal.throwIfAborted();
    return this.#work(
      Array.from(requests, ({ request }) => request),
      controller.signal,
    );
  }
}

function abortIfEmpty({ requests, controller }: Batch<unknown, unknown>): void {
  if (requests.size === 0) controller.abort();
}
