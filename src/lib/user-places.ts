/**
 * So much of a kind at a time, such as runs of jobs or installs. Root has places of its own; users share theirs, and none of them
 * gets all of it. Who finds none waits, and users take turns, so that what one asks for never keeps another's waiting for long.
 */
export interface PlaceBounds {
  readonly root: number;
  /** Of all users, and of one. */
  readonly users: number;
  readonly perUser: number;
  /**
   * Who is first of those who wait for one user's places: without it, who came first. `newest` is for what takes moments, where
   * one more is to wait for none of the hundreds that its user asked for before; these wait for as long as newer ones come.
   */
  readonly first?: "newest";
}

interface User {
  readonly isRoot: boolean;
  running: number;
  /** Those who wait, from `head` on: shifting an array of 100,000 is slow. */
  waiting: ((place: Disposable) => void)[];
  head: number;
}

export class UserPlaces {
  readonly #what: string;
  readonly #isRoot: (uid: number) => boolean;
  readonly #bounds: PlaceBounds;
  /** Users who have places or wait; whose turn comes next stands first. */
  readonly #users = new Map<number, User>();
  #usersRunning = 0;

  /** @param what has places, such as `runs` */
  constructor(what: string, isRoot: (uid: number) => boolean, bounds: PlaceBounds) {
    this.#what = what;
    this.#isRoot = isRoot;
    this.#bounds = bounds;
  }

  /** A place, to be disposed of when it is needed no more; undefined when there is none. */
  take(uid: number): Disposable | undefined {
    const user = this.#userOf(uid);
    return this.#full(user) === undefined ? this.#give(uid, user) : undefined;
  }

  /** The same, but waits for one, for ever without a signal. The caller bounds how many wait. @throws the signal's reason */
  async wait(uid: number, signal?: AbortSignal): Promise<Disposable> {
    const user = this.#userOf(uid);
    if (this.#full(user) === undefined) return this.#give(uid, user);
    const turn = Promise.withResolvers<Disposable>();
    const leave = (): void => {
      const at = user.waiting.indexOf(turn.resolve, user.head);
      // It has its place already, and ends by itself.
      if (at < 0) return;
      user.waiting.splice(at, 1);
      this.#forgetIdle(uid, user);
      turn.reject(signal?.reason);
    };
    this.#users.set(uid, user);
    user.waiting.push(turn.resolve);
    signal?.addEventListener("abort", leave, { once: true });
    if (signal?.aborted === true) leave();
    try {
      return await turn.promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  /** Whether there is a place for the user. */
  hasFor(uid: number): boolean {
    return this.whyFull(uid) === undefined;
  }

  /** What there is no place for, such as `1000 runs of yours are running`; undefined when there is one. */
  whyFull(uid: number): string | undefined {
    return this.#full(this.#userOf(uid));
  }

  /** How many of the user's wait. */
  waitingOf(uid: number): number {
    return waitingCount(this.#userOf(uid));
  }

  #userOf(uid: number): User {
    return this.#users.get(uid) ?? { isRoot: this.#isRoot(uid), running: 0, waiting: [], head: 0 };
  }

  #full({ isRoot, running }: User): string | undefined {
    const { root, users, perUser } = this.#bounds;
    if (isRoot) return running < root ? undefined : `${root} ${this.#what} of root are running`;
    if (running >= perUser) return `${perUser} ${this.#what} of yours are running`;
    return this.#usersRunning < users ? undefined : `${users} ${this.#what} of users are running`;
  }

  #give(uid: number, user: User): Disposable {
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
      // The other users go first from now on.
      this.#users.delete(uid);
      wake?.(this.#give(uid, user));
      return;
    }
  }

  /** Takes who is first off the queue. */
  #next(user: User): ((place: Disposable) => void) | undefined {
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
