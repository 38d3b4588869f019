/**
 * How many runs go at once, manual ones included; scheduled ones are held below that by `RunSlots`. Users share a part, and
 * each has a part of that: whoever starts all that they may keeps neither root's jobs nor those of others from running.
 */
import { SvcError } from "../errors.ts";
import { Tally } from "../lib/tally.ts";

/** Runs of all owners, of all users, and of one user; the last below what an owner's helper process works on at a time. */
const maxGoing = 512;
const maxUsersGoing = 384;
const maxGoingPerUser = 56;

export class RunRoom {
  #going = 0;
  #usersGoing = 0;
  /** Of users. */
  readonly #byUser = new Tally<number>();

  /** Room for one run, to be disposed when it has ended. @throws SvcError `too_many` when there is none */
  take(ownerUid: number, isRoot: boolean): Disposable {
    check(this.#going, maxGoing, "runs are going");
    if (!isRoot) {
      check(this.#usersGoing, maxUsersGoing, "runs of users are going");
      check(this.#byUser.of(ownerUid), maxGoingPerUser, "runs of yours are going");
    }
    this.#count(ownerUid, isRoot, 1);
    return { [Symbol.dispose]: () => this.#count(ownerUid, isRoot, -1) };
  }

  #count(ownerUid: number, isRoot: boolean, change: 1 | -1): void {
    this.#going += change;
    if (isRoot) return;
    this.#usersGoing += change;
    this.#byUser.change(ownerUid, change);
  }
}

function check(going: number, max: number, what: string): void {
  if (going < max) return;
  throw new SvcError("resource_exhausted", "too_many", `${max} ${what}; try again later`);
}
