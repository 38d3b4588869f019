/**
 * Limits how much of one kind of work runs at a time, with a fair share for each key, such as a user.
 *
 * A key gets at most `perKey` slots. Reserved keys, such as root, have `reserved` slots of `total` for
 * themselves and, beyond those, share the rest like any other key. So other keys together always find `total
 * - reserved - perKey` slots, and reserved keys always find `reserved`. If no slot is free, keys are served
 * round-robin, and the waiters of one key in order of arrival.
 *
 * Work that only waits for something else, such as a health check, should not hold a slot that others need:
 * give it a limiter of its own with `total: Infinity`, where only `perKey` counts.
 */

export interface LimiterOptions<K> {
  /** Slots of all keys together, reserved ones included. */
  readonly total: number;
  /** Slots of one key. */
  readonly perKey: number;
  /** Slots of `total` that only reserved keys get. Default 0. */
  readonly reserved?: number;
  /** Which keys are reserved. Default: none. */
  readonly isReserved?: (key: K) => boolean;
  /** Waiters of one key; further ones are rejected. */
  readonly maxWaiting: number;
  /** The error for a key that has too many waiters. */
  readonly tooMany: (counts: { readonly running: number; readonly waiting: number }) => Error;
}

interface Share {
  readonly isReserved: boolean;
  running: number;
  /** In order of arrival. */
  readonly waiting: Set<(slot: Disposable) => void>;
}

export class Limiter<K> {
  readonly #options: Required<LimiterOptions<K>>;
  /** Keys that have slots or wait; the next key comes first. */
  readonly #shares = new Map<K, Share>();
  #running = 0;
  /** Slots of reserved keys. */
  #reservedRunning = 0;

  constructor(options: LimiterOptions<K>) {
    this.#options = { reserved: 0, isReserved: () => false, ...options };
  }

  /** Slots in use. */
  get running(): number {
    return this.#running;
  }

  /** The number of waiters of this key. */
  waitingOf(key: K): number {
    return this.#shares.get(key)?.waiting.size ?? 0;
  }

  /** Returns a slot, to be disposed when the work has ended; undefined if none is free. */
  tryAcquire(key: K): Disposable | undefined {
    const share = this.#shareOf(key);
    return share.waiting.size === 0 && this.#isFree(share) ? this.#grant(key, share) : undefined;
  }

  /**
   * Waits for a slot; dispose it when the work has ended.
   * @throws `tooMany` of the options if too many of this key are waiting; the signal's reason
   */
  async acquire(key: K, signal?: AbortSignal): Promise<Disposable> {
    signal?.throwIfAborted();
    const slot = this.tryAcquire(key);
    if (slot !== undefined) return slot;
    const share = this.#shareOf(key);
    this.#requireFewWaiting(share);
    const { promise, resolve, reject } = Promise.withResolvers<Disposable>();
    const leave = (): void => {
      // A slot that was granted at the same moment stays with its holder, who disposes it.
      if (!share.waiting.delete(resolve)) return;
      this.#forgetIfIdle(key, share);
      reject(signal?.reason);
    };
    this.#shares.set(key, share);
    share.waiting.add(resolve);
    signal?.addEventListener("abort", leave, { once: true });
    try {
      return await promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  #shareOf(key: K): Share {
    const isReserved = (): boolean => this.#options.isReserved(key);
    return this.#shares.get(key) ?? { isReserved: isReserved(), running: 0, waiting: new Set() };
  }

  #isFree(share: Share): boolean {
    const { total, perKey, reserved } = this.#options;
    if (share.isReserved && this.#reservedRunning < reserved) return true;
    const own = share.isReserved ? this.#reservedRunning - reserved : share.running;
    const shared = this.#running - Math.min(this.#reservedRunning, reserved);
    return own < perKey && shared < total - reserved;
  }

  #grant(key: K, share: Share): Disposable {
    this.#shares.set(key, share);
    this.#count(share, 1);
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#count(share, -1);
        this.#forgetIfIdle(key, share);
        this.#serveNext();
      },
    };
  }

  #count(share: Share, change: 1 | -1): void {
    share.running += change;
    this.#running += change;
    if (share.isReserved) this.#reservedRunning += change;
  }

  #forgetIfIdle(key: K, share: Share): void {
    if (share.running === 0 && share.waiting.size === 0) this.#shares.delete(key);
  }

  #serveNext(): void {
    for (const [key, share] of this.#shares) {
      const [first] = share.waiting;
      if (first === undefined || !this.#isFree(share)) continue;
      share.waiting.delete(first);
      // Moves this key behind the others.
      this.#shares.delete(key);
      first(this.#grant(key, share));
      return;
    }
  }

  #requireFewWaiting({ waiting, running }: Share): void {
    const { maxWaiting, tooMany } = this.#options;
    if (waiting.size >= maxWaiting) throw tooMany({ running, waiting: waiting.size });
  }
}
