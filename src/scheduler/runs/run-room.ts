/**
 * How many runs go at once, scheduled ones and those started by hand. Every due job starts independently of the others
 * (S 1.4.3), so the bounds are in the thousands, where the host itself comes to its end. Root has room of its own; users
 * share theirs, and none of them gets all of it. Who finds none waits, and owners take turns, so that one's jobs never keep
 * another's waiting for long.
 */
import { SvcError } from "../../errors.ts";

export interface RunRoomBounds {
  /** Runs of root. */
  readonly root: number;
  /** Runs of all users, and of one. */
  readonly users: number;
  readonly perUser: number;
}

const defaultBounds: RunRoomBounds = { root: 2_000, users: 3_000, perUser: 1_000 };

interface Owner {
  readonly isRoot: boolean;
  running: number;
  /** Those who wait, from `head` on: shifting an array of 100,000 is slow. */
  waiting: ((place: Disposable) => void)[];
  head: number;
}

export class RunRoom {
  readonly #isRoot: (ownerUid: number) => boolean;
  readonly #bounds: RunRoomBounds;
  /** Owners with runs that go or wait; whose turn comes next stands first. */
  readonly #owners = new Map<number, Owner>();
  #usersRunning = 0;

  constructor(isRoot: (ownerUid: number) => boolean, bounds = defaultBounds) {
    this.#isRoot = isRoot;
    this.#bounds = bounds;
  }

  /** Room for one run, to be disposed when it has ended. @throws SvcError `too_many` when there is none */
  take(ownerUid: number): Disposable {
    const owner = this.#ownerOf(ownerUid);
    const full = this.#full(owner);
    if (full === undefined) return this.#give(ownerUid, owner);
    throw new SvcError("too_many", `${full}; try again later`);
  }

  /**
   * The same, but waits for room. Never resolves when the daemon stops before. The caller bounds how many wait: one per job.
   */
  async wait(ownerUid: number): Promise<Disposable> {
    const owner = this.#ownerOf(ownerUid);
    if (this.#full(owner) === undefined) return this.#give(ownerUid, owner);
    return new Promise((resolve) => owner.waiting.push(resolve));
  }

  /** Whether there is room for another run of the owner. */
  hasFor(ownerUid: number): boolean {
    return this.#full(this.#owners.get(ownerUid) ?? this.#newOwner(ownerUid)) === undefined;
  }

  #ownerOf(uid: number): Owner {
    const owner = this.#owners.get(uid) ?? this.#newOwner(uid);
    this.#owners.set(uid, owner);
    return owner;
  }

  #newOwner(uid: number): Owner {
    return { isRoot: this.#isRoot(uid), running: 0, waiting: [], head: 0 };
  }

  /** What there is no room for. */
  #full({ isRoot, running }: Owner): string | undefined {
    const { root, users, perUser } = this.#bounds;
    if (isRoot) return running < root ? undefined : `${root} runs of root are running`;
    if (running >= perUser) return `${perUser} runs of yours are running`;
    return this.#usersRunning < users ? undefined : `${users} runs of users are running`;
  }

  #give(uid: number, owner: Owner): Disposable {
    this.#count(owner, 1);
    let isTaken = true;
    return {
      [Symbol.dispose]: () => {
        if (!isTaken) return;
        isTaken = false;
        this.#count(owner, -1);
        if (owner.running === 0 && owner.waiting.length === 0) this.#owners.delete(uid);
        this.#wakeNext();
      },
    };
  }

  #count(owner: Owner, change: 1 | -1): void {
    owner.running += change;
    if (!owner.isRoot) this.#usersRunning += change;
  }

  #wakeNext(): void {
    for (const [uid, owner] of this.#owners) {
      const wake = owner.waiting[owner.head];
      if (wake === undefined || this.#full(owner) !== undefined) continue;
      this.#advance(uid, owner);
      wake(this.#give(uid, owner));
      return;
    }
  }

  /** Takes the first of those who wait off the queue, and lets the other owners go first from now on. */
  #advance(uid: number, owner: Owner): void {
    owner.head += 1;
    if (owner.head > owner.waiting.length / 2) {
      owner.waiting = owner.waiting.slice(owner.head);
      owner.head = 0;
    }
    this.#owners.delete(uid);
    this.#owners.set(uid, owner);
  }
}
