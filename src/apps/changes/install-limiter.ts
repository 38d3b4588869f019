/** Limits how many installs and upgrades, which fetch and unpack packages, run at a time. */
import { SvcError } from "../../errors.ts";
import { Limiter } from "../../lib/limiter.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { WorkOptions } from "../../work/progress.ts";

export interface InstallLimits {
  /** Maximum for each user, including root. */
  maxInstallsPerUser: number;
  /** Maximum for all regular users together. */
  maxInstalls: number;
  maxWaitingInstallsPerUser: number;
}

const rootUid = 0;
/** After so long an install counts for its user only: users with slow registries must not hold all slots. */
const sharedMs = 30_000;

export class InstallLimiter {
  readonly #limits: InstallLimits;
  /** Holds a slot for the whole install; only the bound of a user counts. */
  readonly #own: Limiter<number>;
  /** Holds a slot for the first {@link sharedMs}. Root's slots are reserved. */
  readonly #shared: Limiter<number>;
  readonly #sharedMs: number;

  constructor(limits: InstallLimits, shared: number = sharedMs) {
    const { maxInstalls, maxInstallsPerUser: perKey, maxWaitingInstallsPerUser: maxWaiting } = limits;
    this.#limits = limits;
    this.#sharedMs = shared;
    this.#own = new Limiter({
      total: Number.POSITIVE_INFINITY,
      perKey,
      maxWaiting,
      tooMany: ({ waiting }) => tooMany(waiting, maxWaiting),
    });
    this.#shared = new Limiter({
      total: maxInstalls + perKey,
      perKey,
      reserved: perKey,
      isReserved: (uid) => uid === rootUid,
      maxWaiting,
      tooMany: ({ waiting }) => tooMany(waiting, maxWaiting),
    });
  }

  /**
   * Waits for a slot; dispose of it when the install has ended.
   * @throws SvcError `too_many` when too many of the caller wait already, `canceled`
   */
  async take({ root, uid }: AppCaller, { signal, onProgress }: WorkOptions): Promise<Disposable> {
    const user = root ? rootUid : uid;
    const slots = new DisposableStack();
    const waitIn = (limiter: Limiter<number>): Promise<Disposable> => {
      const slot = limiter.acquire(user, signal);
      onProgress?.({ step: "wait", message: this.#explain() });
      return slot;
    };
    try {
      signal?.throwIfAborted();
      slots.use(this.#own.tryAcquire(user) ?? (await waitIn(this.#own)));
      const shared = slots.use(this.#shared.tryAcquire(user) ?? (await waitIn(this.#shared)));
      const timer = setTimeout(() => shared[Symbol.dispose](), this.#sharedMs);
      slots.defer(() => clearTimeout(timer));
      return slots;
    } catch (error) {
      slots.dispose();
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
