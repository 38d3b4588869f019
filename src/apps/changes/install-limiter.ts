/** Limits how many installs and upgrades, which fetch and unpack packages, run at a time. */
import { SvcError } from "../../errors.ts";
import { LongWorkLimiter } from "../../lib/long-work-limiter.ts";
import { rootShare } from "../../lib/share-owner.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { WorkOptions } from "../../work/progress.ts";

export interface InstallLimits {
  /** Maximum for each user, including root. */
  maxInstallsPerUser: number;
  /** Maximum for all regular users together. */
  maxInstalls: number;
  maxWaitingInstallsPerUser: number;
}

export class InstallLimiter {
  readonly #limits: InstallLimits;
  readonly #slots: LongWorkLimiter;

  constructor(limits: InstallLimits, sharedMs?: number) {
    const { maxInstalls: users, maxInstallsPerUser: perUser, maxWaitingInstallsPerUser: maxWaiting } = limits;
    this.#limits = limits;
    this.#slots = new LongWorkLimiter({
      ...{ perUser, root: perUser, users, sharedMs, maxWaiting },
      tooMany: ({ waiting }) => tooMany(waiting, maxWaiting),
    });
  }

  /**
   * Waits for a slot; dispose of it when the install has ended.
   * @throws SvcError `too_many` when too many of the caller wait already, `canceled`
   */
  async take({ root, uid }: AppCaller, { signal, onProgress }: WorkOptions): Promise<Disposable> {
    const onWait = (): void => onProgress?.({ step: "wait", message: this.#explain() });
    try {
      return await this.#slots.acquire(root ? rootShare : uid, signal, onWait);
    } catch (error) {
      if (error instanceof SvcError) throw error;
      throw new SvcError("canceled", "canceled while waiting for other installs", { cause: error });
    }
  }

  #explain(): string {
    const { maxInstallsPerUser, maxInstalls } = this.#limits;
    return `Waiting: at most ${maxInstallsPerUser} installs of a user and ${maxInstalls} of all users run at a time`;
  }
}

function tooMany(waiting: number, bound: number): SvcError {
  const message = `${waiting} of your installs wait already, and [limits] max_waiting_installs_per_user is ${bound}`;
  return new SvcError("too_many", `cannot install: ${message}; wait until one has finished`);
}
