/** Makes the backups that policies want, a few at a time: the scheduler's pass of every minute (S 1.4.2). */
import type { AppRecord } from "../apps/app-record.ts";
import type { AppCaller } from "../apps/app-registry.ts";
import { SvcError } from "../errors.ts";
import { UserPlaces } from "../lib/user-places.ts";
import { isDue, viewMinute } from "../scheduler/trigger/matcher.ts";
import type { Zones } from "../scheduler/trigger/zone.ts";
import type { BackupStates } from "./backup-states.ts";

/**
 * More would only take the disk and the processors from each other. A user's dump may take a day: it keeps nobody else from theirs,
 * and root's have places of their own.
 */
const bounds = { root: 2, users: 2, perUser: 1 };
const rootUid = 0;
const minutesPerHour = 60;

export interface PolicyPassOptions {
  apps: { all(): Promise<readonly AppRecord[]> };
  states: BackupStates;
  zones: Zones;
  /** Whose backup it is. */
  callerOf: (app: AppRecord) => AppCaller;
  /** Makes what the policy of an app wants. */
  make: (app: AppRecord, signal: AbortSignal) => Promise<void>;
  /** Notes since when nothing of an app was missed, unix milliseconds. */
  tried: (appId: string, atMs: number | null) => Promise<void>;
  /** Every hour. */
  settle: () => Promise<void>;
  /** Unix milliseconds. */
  now: () => number;
}

export interface BackupFailure {
  readonly app: string;
  readonly error: unknown;
}

export class PolicyPass {
  readonly #options: PolicyPassOptions;
  /** Apps whose backup goes on or waits: one that takes long is not begun again. */
  readonly #pending = new Set<string>();
  readonly #places = new UserPlaces("backups", (uid) => uid === rootUid, bounds);

  constructor(options: PolicyPassOptions) {
    this.#options = options;
  }

  /**
   * Makes the backups that policies want in the minute, in one pass, one app's failure not keeping the others from theirs.
   * @param minuteMs its start, unix milliseconds
   * @param signal aborts when the daemon stops
   * @returns the apps whose backup failed
   */
  async run(minuteMs: number, signal: AbortSignal): Promise<readonly BackupFailure[]> {
    const { apps, states, zones, settle } = this.#options;
    // A storage that does not answer holds up no backup.
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
      using _place = await this.#places.wait(root ? rootUid : uid, signal);
      signal.throwIfAborted();
      await this.#make(app, signal);
      return [];
    } catch (error) {
      return [{ app: app.id, error: error instanceof SvcError ? error.message : error }];
    } finally {
      this.#pending.delete(app.id);
    }
  }

  /** Noted before it begins: what ends the daemon is not to do so again with each that starts. */
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
