/** Installs and upgrades at a time: each fetches what a user named, and unpacks it (threats 58). */
import { SvcError } from "../errors.ts";
import { UserPlaces } from "../lib/user-places.ts";
import type { AppCaller } from "./app-registry.ts";
import type { WorkOptions } from "./progress.ts";

export interface InstallLimits {
  /** Of root as well. */
  maxInstallsPerUser: number;
  /** Of all regular users. */
  maxInstalls: number;
  maxWaitingInstallsPerUser: number;
}

const rootUid = 0;

export class InstallTurns {
  readonly #limits: InstallLimits;
  readonly #places: UserPlaces;

  constructor(limits: InstallLimits) {
    const { maxInstalls: users, maxInstallsPerUser: perUser } = limits;
    this.#limits = limits;
    this.#places = new UserPlaces("installs", (uid) => uid === rootUid, { root: perUser, users, perUser });
  }

  /**
   * Resolves when it is the caller's turn, which they have until it is disposed of.
   * @throws SvcError `too_many` when too many of theirs wait already, `canceled`
   */
  async take({ root, uid }: AppCaller, { signal, onProgress }: WorkOptions): Promise<Disposable> {
    const user = root ? rootUid : uid;
    if (!this.#places.hasFor(user)) {
      this.#requireFewWaiting(user);
      onProgress?.({ step: "wait", message: this.#explain() });
    }
    try {
      return await this.#places.wait(user, signal);
    } catch (error) {
      throw new SvcError("canceled", "canceled while waiting for other installs", { cause: error });
    }
  }

  #requireFewWaiting(user: number): void {
    const waiting = this.#places.waitingOf(user);
    const { maxWaitingInstallsPerUser: most } = this.#limits;
    if (waiting < most) return;
    const message = `${waiting} of your installs wait already, and [limits] max_waiting_installs_per_user is ${most}`;
    throw new SvcError("too_many", message);
  }

  #explain(): string {
    const { maxInstallsPerUser, maxInstalls } = this.#limits;
    return `Waiting: at most ${maxInstallsPerUser} installs of a user and ${maxInstalls} of all users run at a time`;
  }
}
