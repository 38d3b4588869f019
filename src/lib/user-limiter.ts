/**
 * Limits how much of one kind of work, such as runs of jobs or installs, runs at a time. Root has its own
 * slots. Users share theirs, and no user gets all of them. If no slot is free, users are served round-robin,
 * so that many requests of one user never delay another's for long.
 */
export interface UserLimits {
  readonly root: number;
  /** Slots of all users, and of one. */
  readonly users: number;
  readonly perUser: number;
  /** Slots that a user gets even if others use all slots of users. Default: 0. */
  readonly guaranteed?: number;
  /**
   * Which waiter of a user is first. Default: the oldest. `newest` is for short work, where one more must not wait for
   * hundreds that the same user requested before; those wait as long as newer ones arrive.
   */
  readonly first?: "newest";
}

interface User {
  readonly isRoot: boolean;
  running: number;
  /** Waiters, starting at index `head`: shifting an array of 100,000 is slow. */
  waiting: ((slot: Disposable) => void)[];
  head: number;
}

export class UserLimiter {
  readonly #what: string;
  readonly #isRoot: (uid: number) => boolean;
  readonly #bounds: UserLimits;
  /** Users who have slots or wait; the next one comes first. */
  readonly #users = new Map<number, User>();
  #usersRunning = 0;

  /** @param what the kind of work, such as `runs` */
  constructor(what: string, isRoot: (uid: number) => boolean, bounds: UserLimits) {
    this.#what = what;
    this.#isRoot = isRoot;
    this.#bounds = bounds;
  }

  /** Returns a slot, to be disposed when the work has ended; undefined if none is free. */
  tryAcquire(uid: number): Disposable | undefined {
    const user = this.#userOf(uid);
    return this.#full(user) === undefined ? this.#grant(uid, user) : undefined;
  }

  /**
   * Waits for a slot, without limit if there is no signal. The caller limits the number of waiters.
   * @throws the signal's reason
   */
  async acquire(uid: number, signal?: AbortSignal): Promise<Disposable> {
    const user = this.#userOf(uid);
    if (this.#full(user) === undefined) return this.#grant(uid, user);
    const granted = Promise.withResolvers<Disposable>();
    const leave = (): void => {
      const at = user.waiting.indexOf(granted.resolve, user.head);
      // A slot was already granted; its holder disposes it.
      if (at < 0) return;
      user.waiting.splice(at, 1);
      this.#forgetIdle(uid, user);
      granted.reject(signal?.reason);
    };
    this.#users.set(uid, user);
    user.waiting.push(granted.resolve);
    signal?.addEventListener("abort", leave, { once: true });
    if (signal?.aborted === true) leave();
    try {
      return await granted.promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  /** Whether a slot is free for the user. */
  isAvailable(uid: number): boolean {
    return this.reachedLimit(uid) === undefined;
  }

  /** Which limit is reached, such as `1000 runs of yours are running`; undefined if a slot is free. */
  reachedLimit(uid: number): string | undefined {
    return this.#full(this.#userOf(uid));
  }

  /** The number of the user's waiters. */
  waitingOf(uid: number): number {
    return waitingCount(this.#userOf(uid));
  }

  #userOf(uid: number): User {
    return this.#users.get(uid) ?? { isRoot: this.#isRoot(uid), running: 0, waiting: [], head: 0 };
  }

  #full({ isRoot, running }: User): string | undefined {
    const { root, users, perUser, guaranteed = 0 } = this.#bounds;
    if (isRoot) return running < root ? undefined : `${root} ${this.#what} of root are running`;
    if (running >= perUser) return `${perUser} ${this.#what} of yours are running`;
    return running < guaranteed || this.#usersRunning < users
      ? undefined
      : `${users} ${this.#what} of users are running`;
  }

  #grant(uid: number, user: User): Disposable {
    this.#users.set(uid, user);
    this.#count(user, 1);
    let isTaken = true;
    return {
      [Symbol.dispose]: () => {
        if (!isTaken) return;
        isTaken = false;
        this.#count(user, -1);
        this.#forgetIdle(uid, user);
        this.#wakeNext();
      },
    };
  }

  #count(user: User, change: 1 | -1): void {
    user.running += change;
    if (!user.isRoot) this.#usersRunning += change;
  }

  #forgetIdle(uid: number, user: User): void {
    if (user.running === 0 && waitingCount(user) === 0) this.#users.delete(uid);
  }

  #wakeNext(): void {
    for (const [uid, user] of this.#users) {
      if (waitingCount(user) === 0 || this.#full(user) !== undefined) continue;
      const wake = this.#next(user);
      // Moves this user behind the others.
      this.#users.delete(uid);
      wake?.(this.#grant(uid, user));
      return;
    }
  }

  /** Removes the next waiter from the queue. */
  #next(user: User): ((slot: Disposable) => void) | undefined {
    if (this.#bounds.first === "newest") return user.waiting.pop();
    const first = user.waiting[user.head];
    user.head += 1;
    if (user.head > user.waiting.length / 2) {
      user.waiting = user.waiting.slice(user.head);
      user.head = 0;
    }
    return first;
  }
}

function waitingCount({ waiting, head }: User): number {
  return waiting.length - head;
}
