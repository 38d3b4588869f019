/**
 * Limits how much of one kind of work runs at a time, with a fair share for each key, such as a user. A key gets at most `perKey` of
 * the `total` slots. Of these, `reserved` slots are only for reserved keys, such as root, which share the rest like any other key. If no
 * slot is free, keys are served round-robin, and the waiters of one key in order of arrival.
 *
 * Work that only waits, such as a health check, needs a separate limiter with `total: Infinity`, where only `perKey` counts.
 */

export interface LimiterOptions<K> {
  /** Slots of all keys together, reserved ones included. */
  readonly total: number;
  /** Slots of one key. */
  readonly perKey: number;
  /** Slots that a key without reserved slots gets even if others use all. Default 0. */
  readonly guaranteed?: number;
  /** Slots of `total` that only reserved keys get. Default 0. */
  readonly reserved?: number;
  /** Which keys are reserved. Default: none. */
  readonly isReserved?: (key: K) => boolean;
  /** Waiters of one key; further ones are rejected. Default: the caller limits them. */
  readonly maxWaiting?: number;
  /** The error for a key that has too many waiters. */
  readonly tooMany?: (counts: { readonly running: number; readonly waiting: number }) => Error;
  /**
   * Which waiter of a key is first. Default: the oldest. `newest` is for short work, where one more must not wait for
   * hundreds that the same user requested before; those wait as long as newer ones arrive.
   */
  readonly first?: "oldest" | "newest";
}

type Waiter = (slot: Disposable) => void;

interface Share {
  readonly isReserved: boolean;
  running: number;
  /** In order of arrival. */
  readonly waiting: Set<Waiter>;
}

const defaults: Required<Omit<LimiterOptions<unknown>, "total" | "perKey">> = {
  guaranteed: 0,
  reserved: 0,
  isReserved: () => false,
  maxWaiting: Number.POSITIVE_INFINITY,
  tooMany: () => new Error("too many are waiting"),
  first: "oldest",
};

export class Limiter<K> {
  readonly #options: Required<LimiterOptions<K>>;
  /** Keys that have slots or wait; the next key comes first. */
  readonly #shares = new Map<K, Share>();
  #running = 0;
  /** Slots of reserved keys. */
  #reservedRunning = 0;

  constructor(options: LimiterOptions<K>) {
    this.#options = { ...defaults, ...options };
  }

  /** Slots in use. */
  get running(): number {
    return this.#running;
  }

  /** The slots that this key uses. */
  runningOf(key: K): number {
    return this.#shares.get(key)?.running ?? 0;
  }

  /** The number of waiters of this key. */
  waitingOf(key: K): number {
    return this.#shares.get(key)?.waiting.size ?? 0;
  }

  /** The number of waiters of all keys. */
  get waiting(): number {
    return this.#shares.values().reduce((sum, { waiting }) => sum + waiting.size, 0);
  }

  /** Which limit is reached for this key; undefined if a slot is free. */
  reachedLimit(key: K): "perKey" | "total" | undefined {
    return this.#reachedLimit(this.#shareOf(key));
  }

  /** Returns a slot, to be disposed when the work has ended; undefined if none is free. */
  tryAcquire(key: K): Disposable | undefined {
    const share = this.#shareOf(key);
    const isFree = share.waiting.size === 0 && this.#reachedLimit(share) === undefined;
    return isFree ? this.#grant(key, share) : undefined;
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
    const { isReserved } = this.#options;
    return this.#shares.get(key) ?? { isReserved: isReserved(key), running: 0, waiting: new Set() };
  }

  #reachedLimit(share: Share): "perKey" | "total" | undefined {
    const { total, perKey, guaranteed, reserved } = this.#options;
    if (share.isReserved && this.#reservedRunning < reserved) return undefined;
    const own = share.isReserved ? this.#reservedRunning - reserved : share.running;
    if (own >= perKey) return "perKey";
    const isGuaranteed = !share.isReserved && own < guaranteed;
    const shared = this.#running - Math.min(this.#reservedRunning, reserved);
    return isGuaranteed || shared < total - reserved ? undefined : "total";
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
      if (this.#reachedLimit(share) !== undefined) continue;
      const waiter = this.#nextWaiter(share);
      if (waiter === undefined) continue;
      share.waiting.delete(waiter);
      // Moves this key behind the others.
      this.#shares.delete(key);
      waiter(this.#grant(key, share));
      return;
    }
  }

  #nextWaiter({ waiting }: Share): Waiter | undefined {
    const [oldest] = waiting;
    return this.#options.first === "oldest" ? oldest : [...waiting].at(-1);
  }

  #requireFewWaiting({ waiting, running }: Share): void {
    const { maxWaiting, tooMany } = this.#options;
    if (waiting.size >= maxWaiting) throw tooMany({ running, waiting: waiting.size });
  }
}

/** Limits each key to one piece of work at a time, in order of arrival. */
export function oneAtATime<K>(): Limiter<K> {
  return new Limiter({ total: Number.POSITIVE_INFINITY, perKey: 1 });
}
