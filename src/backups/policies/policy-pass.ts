/** Creates the backups that policies require, a few at a time. The scheduler runs it every minute. */
import type { AppRecord } from "../../apps/records/app-record.ts";
import type { AppCaller } from "../../apps/records/app-registry.ts";
import { SvcError } from "../../errors.ts";
import { UserLimiter } from "../../lib/user-limiter.ts";
import { isDue, viewMinute } from "../../triggers/matcher.ts";
import type { Zones } from "../../triggers/zone.ts";
import { onShareOf, rootShare } from "../../lib/share-owner.ts";
import type { BackupStates } from "./backup-states.ts";

/** More backups at a time would only compete for disk and CPU. */
const bounds = { root: 2, users: 2, perUser: 1 };
/** After this long a backup counts for its user only: users with slow dumps must not hold all slots. */
const defaultSharedMs = 30_000;
const minutesPerHour = 60;

export interface PolicyPassOptions {
  apps: { all(): Promise<readonly AppRecord[]> };
  states: BackupStates;
  zones: Zones;
  /** The caller for an app's backup. */
  callerOf: (app: AppRecord) => AppCaller;
  /** Creates a backup by an app's policy. */
  make: (app: AppRecord, signal: AbortSignal) => Promise<void>;
  /** Records when an app's backup was started, unix milliseconds. */
  tried: (appId: string, atMs: number | null) => Promise<void>;
  /** Called every hour. */
  settle: () => Promise<void>;
  /** Unix milliseconds. */
  now: () => number;
  /** Milliseconds that a backup uses one of the slots shared by users. Default: 30,000. */
  sharedMs?: number;
}

export interface BackupFailure {
  readonly app: string;
  readonly error: unknown;
}

export class PolicyPass {
  readonly #options: PolicyPassOptions;
  /** Apps with a running or waiting backup, which is not started again. */
  readonly #pending = new Set<string>();
  /** One slot of each user for the whole backup. */
  readonly #own = new UserLimiter("backups", isRoot, { ...bounds, users: Number.POSITIVE_INFINITY });
  /** One of the slots that users share, for the first {@link defaultSharedMs}. */
  readonly #shared = new UserLimiter("backups", isRoot, bounds);

  constructor(options: PolicyPassOptions) {
    this.#options = options;
  }

  /**
   * Creates the backups that are due in the minute. A failed backup does not affect the others.
   * @param minuteMs its start, unix milliseconds
   * @param signal aborts when the daemon stops
   * @returns the apps whose backup failed
   */
  async run(minuteMs: number, signal: AbortSignal): Promise<readonly BackupFailure[]> {
    const { apps, states, zones, settle } = this.#options;
    // An unresponsive storage does not delay backups.
    const settling = Math.floor(minuteMs / 60_000) % minutesPerHour === 0 ? settle() : undefined;
    const view = viewMinute(zones.local(), minuteMs);
    const due = (await apps.all()).filter((app) => {
      const { trigger } = states.policyOf(app);
      if (trigger === undefined || this.#pending.has(app.id)) return false;
      return isDue(trigger, view) || states.isMissed(app);
    });
    const failures = await Promise.all(due.map((app) => this.#backUp(app, signal)));
    await settling;
    return failures.flat();
  }

  async #backUp(app: AppRecord, signal: AbortSignal): Promise<BackupFailure[]> {
    this.#pending.add(app.id);
    try {
      const { root, uid } = this.#options.callerOf(app);
      const share = root ? rootShare : uid;
      using _slots = await this.#acquire(share, signal);
      signal.throwIfAborted();
      await onShareOf(share, () => this.#make(app, signal));
      return [];
    } catch (error) {
      return [{ app: app.id, error: error instanceof SvcError ? error.message : error }];
    } finally {
      this.#pending.delete(app.id);
    }
  }

  async #acquire(uid: number, signal: AbortSignal): Promise<Disposable> {
    using slots = new DisposableStack();
    slots.use(await this.#own.acquire(uid, signal));
    const shared = slots.use(await this.#shared.acquire(uid, signal));
    if (uid !== rootShare) {
      const timer = setTimeout(() => shared[Symbol.dispose](), this.#options.sharedMs ?? defaultSharedMs);
      slots.defer(() => clearTimeout(timer));
    }
    return slots.move();
  }

  /** Recorded before the start: a backup that crashes the daemon must not do so at each start. */
  async #make(app: AppRecord, signal: AbortSignal): Promise<void> {
    const { states, make, tried, now } = this.#options;
    const before = states.triedAtMs(app);
    await tried(app.id, now());
    try {
      await make(app, signal);
    } catch (error) {
      const isForLater = signal.aborted || (error instanceof SvcError && error.reason === "app_busy");
      if (isForLater) await tried(app.id, before);
      throw error;
    }
  }
}

function isRoot(uid: number): boolean {
  return uid === rootShare;
}
