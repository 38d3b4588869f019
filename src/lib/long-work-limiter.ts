/** Limits long work of users, such as installs, so that users with slow work never hold all slots. */
import { Limiter, type LimiterOptions } from "./limiter.ts";
import { rootShare } from "./share-owner.ts";

/** After so long, work counts only for its user. */
const defaultSharedMs = 30_000;

export interface LongWorkLimits extends Pick<LimiterOptions<number>, "maxWaiting" | "tooMany"> {
  /** Slots of each user. */
  readonly perUser: number;
  /** Slots of root; at least {@link perUser}. */
  readonly root: number;
  /** Slots of all regular users together. */
  readonly users: number;
  /** Milliseconds for which work uses one of the users' slots. Default: 30,000. */
  readonly sharedMs?: number | undefined;
}

export class LongWorkLimiter {
  /** Holds a slot for all of the work; only the bound of a user counts. */
  readonly #own: Limiter<number>;
  /** Holds a slot for the first part of the work. Root's slots are reserved. */
  readonly #shared: Limiter<number>;
  readonly #sharedMs: number;

  constructor({ perUser: perKey, root, users, sharedMs = defaultSharedMs, ...waiting }: LongWorkLimits) {
    const bounds = { perKey, isReserved: (uid: number) => uid === rootShare, ...waiting };
    this.#own = new Limiter({ ...bounds, total: Number.POSITIVE_INFINITY, reserved: root - perKey });
    this.#shared = new Limiter({ ...bounds, total: users + root, reserved: root });
    this.#sharedMs = sharedMs;
  }

  /**
   * Waits for a slot; dispose of it when the work has ended.
   * @param onWait called when no slot is free
   * @throws `tooMany` of the limits; the signal's reason
   */
  async acquire(uid: number, signal?: AbortSignal, onWait?: () => void): Promise<Disposable> {
    using slots = new DisposableStack();
    const wait = (limiter: Limiter<number>): Promise<Disposable> => {
      onWait?.();
      return limiter.acquire(uid, signal);
    };
    signal?.throwIfAborted();
    slots.use(this.#own.tryAcquire(uid) ?? (await wait(this.#own)));
    const shared = slots.use(this.#shared.tryAcquire(uid) ?? (await wait(this.#shared)));
    const timer = setTimeout(() => shared[Symbol.dispose](), this.#sharedMs);
    slots.defer(() => clearTimeout(timer));
    return slots.move();
  }
}
