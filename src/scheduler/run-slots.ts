/**
 * How many scheduled runs go at once. Every due job starts independently of the others (S 1.4.3) for as long as there are
 * slots, which in normal times there are; a thousand jobs of one midnight are started as others end, in the order in
 * which they were due, and owners take turns, so that one's never keep another's waiting for long.
 */

export interface RunSlotsOptions {
  /** Runs of all owners. */
  maxGoing: number;
  /** Runs of one owner; below what an owner's helper process works on at a time, so that it stays free for other work. */
  maxGoingPerOwner: number;
}

export const defaultRunSlots: RunSlotsOptions = { maxGoing: 256, maxGoingPerOwner: 48 };

interface Owner {
  readonly uid: number;
  going: number;
  /** Those who wait, from `head` on: shifting an array of 100,000 is slow. */
  waiting: (() => void)[];
  head: number;
}

export class RunSlots {
  readonly #options: RunSlotsOptions;
  /** Owners with runs that go or wait; whose turn comes next stands first. */
  readonly #owners = new Map<number, Owner>();
  #going = 0;

  constructor(options: RunSlotsOptions = defaultRunSlots) {
    this.#options = options;
  }

  /**
   * Resolves with a slot, at once when one is free; dispose it to give it back. Never resolves when the daemon stops
   * before. The caller bounds how many wait: one per job.
   */
  async take(ownerUid: number): Promise<Disposable> {
    const owner = this.#owners.get(ownerUid) ?? { uid: ownerUid, going: 0, waiting: [], head: 0 };
    this.#owners.set(ownerUid, owner);
    if (this.#hasRoom(owner)) this.#give(owner);
    else await new Promise<void>((resolve) => owner.waiting.push(resolve));
    let isTaken = true;
    return {
      [Symbol.dispose]: () => {
        if (isTaken) this.#takeBack(owner);
        isTaken = false;
      },
    };
  }

  #hasRoom(owner: Owner): boolean {
    const { maxGoing, maxGoingPerOwner } = this.#options;
    return this.#going < maxGoing && owner.going < maxGoingPerOwner;
  }

  #give(owner: Owner): void {
    this.#going += 1;
    owner.going += 1;
  }

  #takeBack(owner: Owner): void {
    this.#going -= 1;
    owner.going -= 1;
    if (owner.going === 0 && owner.waiting.length === 0) this.#owners.delete(owner.uid);
    for (const next of this.#owners.values()) {
      const wake = next.waiting[next.head];
      if (wake === undefined || !this.#hasRoom(next)) continue;
      this.#advance(next);
      this.#give(next);
      wake();
      return;
    }
  }

  /** Takes the first of those who wait off the queue, and lets the other owners go first from now on. */
  #advance(owner: Owner): void {
    owner.head += 1;
    if (owner.head > owner.waiting.length / 2) {
      owner.waiting = owner.waiting.slice(owner.head);
      owner.head = 0;
    }
    this.#owners.delete(owner.uid);
    this.#owners.set(owner.uid, owner);
  }
}
